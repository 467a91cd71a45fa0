"""Choices that a scenario and a peer's file share: values of settings, and the names of plug-ins."""

from typing import Annotated, ClassVar, Literal

from wend.model.settings import Settings, everyday, setting

Ack = Literal["free", "round-trip"]
Estimator = Literal["nominal", "measured"]
Redundancy = Literal["none", "tight", "free"]
Congestion = Literal["copa", "aimd", "none"]
Covering = Literal["identity", "covering", "merging"]

DEFAULT_STRATEGY = "adaptive"


class PluginChoices(Settings):
    """The plug-ins that a peer hosts, and the files that they use."""

    title: ClassVar[str] = "Plug-ins"

    strategy: Annotated[str, everyday("The routing plug-in, which decides where an event goes next.")] = (
        DEFAULT_STRATEGY
    )
    interest: Annotated[
        str | None,
        setting("The interest plug-in, which knows who wants an event; else the one that the strategy needs."),
    ] = None
    membership: Annotated[
        str | None, everyday("The membership plug-in, by which peers choose their links; else peers use all links.")
    ] = None
    plan: Annotated[
        str | None, everyday("The directory of a plan, as `wend plan` writes it, for strategies that follow one.")
    ] = None
    inferred_topology: Annotated[
        str | None,
        everyday(
            "The output of `wend data topology`, a folder: hops of a path that did not answer become the routers that "
            "it inferred there. A live peer reads it again when it changes."
        ),
    ] = None
