"""Settings of the interest `esposito`."""

from typing import Annotated, ClassVar

from wend.model.settings import Settings, setting
from wend.model.units import MS, SECOND, Nanos


class EspositoSettings(Settings, frozen=True, kw_only=True):
    """How coordinators renew their places in the trees, and when they take an event for lost."""

    title: ClassVar[str] = "Esposito"

    place_beacon_ns: Annotated[
        Nanos,
        setting("How often members renew their topics, and coordinators their parents.", unit="s", low=0.1, high=1e6),
    ] = 10 * SECOND
    first_gap_ns: Annotated[
        Nanos,
        setting("How long a tree may lag behind another one, until a larger gap was seen.", low=1, high=1e5),
    ] = 200 * MS
