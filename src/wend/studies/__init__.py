"""Studies of the papers: the runs of each evaluation, its claims, and the report."""

from wend.model.errors import ConfigError
from wend.studies.campr import CAMPR
from wend.studies.dcrd import DCRD
from wend.studies.dmm import DMM_STUDY
from wend.studies.esposito import ESPOSITO
from wend.studies.quist import QUIST
from wend.studies.study import Study

STUDIES: dict[str, Study] = {"dcrd": DCRD, "campr": CAMPR, "quist": QUIST, "dmm": DMM_STUDY, "esposito": ESPOSITO}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise ConfigError(f"there is no study {name!r}; the studies are {', '.join(sorted(STUDIES))}")
    return STUDIES[name]
