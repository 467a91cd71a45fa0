"""Path finding on Spark, compared with one process: the same network, sources and rows, both to Parquet.

`python -m benchmarks.paths [PEERS SOURCES K MASTER]`; by default 5000 peers, 200 sources, five paths to three quarters
of the peers, on local[2]. Both are warm: compiled code is loaded, and Spark has run a small job of the same type.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from wend.model.randomness import stream
from wend.model.rates import Rate
from wend.pipeline.paths_job import SCHEMA, Targets, find_paths_locally, write_paths
from wend.pipeline.spark.session import spark_session
from wend.planning.flow_network import CsrGraph, FlowNetwork
from wend.studies.campr.brite_flat import grow


def draw_network(peers: int, sources: int) -> tuple[CsrGraph, Targets]:
    rng = stream(1, "benchmark", "paths", peers)
    receivers = np.sort(rng.permutation(peers)[: round(0.75 * peers)]).astype(np.int32)
    chosen = np.sort(rng.permutation(peers)[:sources]).tolist()
    graph = FlowNetwork(grow(peers, "attached", seed=1), link=Rate(20.0)).graph
    return graph, {source: receivers[receivers != source] for source in chosen}


def time_locally(graph: CsrGraph, wanted: Targets, k: int, out: Path) -> float:
    began = time.perf_counter()
    with pq.ParquetWriter(out, SCHEMA) as file:
        for batch in find_paths_locally(graph, wanted, k):
            file.write_batch(batch)
    return time.perf_counter() - began


def main(peers: int = 5000, sources: int = 200, k: int = 5, master: str = "local[2]") -> None:
    graph, wanted = draw_network(peers, sources)
    few = dict(list(wanted.items())[:4])
    with tempfile.TemporaryDirectory(prefix="wend-bench-") as folder, spark_session(master) as spark:
        out, scratch = Path(folder), Path(folder) / "scratch"
        scratch.mkdir()
        time_locally(graph, few, k, out / "warm.parquet")
        write_paths(spark, graph, few, k, out / "warm", scratch)
        alone = time_locally(graph, wanted, k, out / "here.parquet")
        began = time.perf_counter()
        found = write_paths(spark, graph, wanted, k, out / "spark", scratch)
        spread = time.perf_counter() - began
    metrics = {"peers": peers, "sources": sources, "k": k, "paths": found, "here_s": alone, "spark_s": spread}
    print(json.dumps({**metrics, "ratio": alone / spread}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:5])
