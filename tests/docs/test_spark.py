"""The page on Spark: its lines run, from the peer of the page on logs into tables and back."""

from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks
from tests.pipeline.log_peer_process import LogPeerProcess
from tests.spark import needs_java

pytestmark = [needs_java, pytest.mark.spark]
PAGE = "docs/how-to/spark.md"
TOTALS = '[[logs]]\nname = "totals"\nfilter = "topic = \'total\'"\nevents = 1000\n'


def test_the_lines_of_the_page_run(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"spark": spark, "out": f"file://{tmp_path / 'table'}", "checkpoint": f"file://{tmp_path / 'checkpoint'}"}
    with LogPeerProcess(tmp_path, more=TOTALS) as peer:
        items = [("tea", 2), ("salt", 1), ("tea", 7)]
        peer.publish({"number": n, "item": item, "amount": amount} for n, (item, amount) in enumerate(items))
        lines = blocks(PAGE, "python")
        assert len(lines) == 3
        for block in lines:
            exec(compile(block.replace("wend://127.0.0.1:7700", peer.url), PAGE, "exec"), names)
        totals = {event.attributes["item"]: event.attributes["total"] for event in peer.events("topic = 'total'")}
    assert totals == {"tea": 9, "salt": 1}
    assert "| tea|          9|" in capsys.readouterr().out
