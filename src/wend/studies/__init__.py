"""Studies of the papers: the runs of each evaluation, its claims, and the report."""

from wend.model.errors import ConfigError
from wend.studies.campr.study import CAMPR
from wend.studies.dcrd.study import DCRD
from wend.studies.dmm.study import DMM_STUDY
from wend.studies.esposito.study import ESPOSITO
from wend.studies.quist.study import QUIST
from wend.studies.study_model import Study

STUDIES: dict[str, Study] = {"dcrd": DCRD, "campr": CAMPR, "quist": QUIST, "dmm": DMM_STUDY, "esposito": ESPOSITO}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise ConfigError(f"there is no study {name!r}; the studies are {', '.join(sorted(STUDIES))}")
    return STUDIES[name]
