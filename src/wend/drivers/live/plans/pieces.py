"""The requests of a client about the plan of a peer. A part of a plan is larger than a frame, so it comes in pieces."""

from wend.drivers.live import frames
from wend.drivers.live.plans.followed_plan import FollowedPlan
from wend.model.errors import Refused

MAX_PACKED_BYTES = 32 * 1024 * 1024
"""The most bytes of a part that a client may send."""


class PlanPieces:
    """Gathers the pieces that one client sends."""

    def __init__(self) -> None:
        self._gathered = bytearray()

    async def serve(self, frame: frames.PlanRequest, followed: FollowedPlan) -> frames.Answer:
        match frame:
            case frames.LoadPlan(ref):
                return frames.Following(ref, await followed.load())
            case frames.PreparePlan(ref, version, data, last):
                self._add_piece(data)
                if last:
                    whole, self._gathered = bytes(self._gathered), bytearray()
                    await followed.prepare(version, whole)
                return frames.Completed(ref)
            case frames.CommitPlan(ref, plan, version):
                await followed.commit(plan, version)
                return frames.Following(ref, plan)
            case frames.RevertPlan(ref, plan, version):
                await followed.revert(plan, version)
                return frames.Completed(ref)

    def _add_piece(self, data: bytes) -> None:
        if len(self._gathered) + len(data) > MAX_PACKED_BYTES:
            self._gathered.clear()
            raise Refused(f"a part of a plan may have {MAX_PACKED_BYTES} bytes", code="too-large")
        self._gathered += data
