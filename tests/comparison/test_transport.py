import asyncio

import pytest

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")


def test_records_that_wait_are_thrown_away_by_a_rebalance_and_not_by_its_end() -> None:
    from millstream.consumers.comparison.transport import FoldingApp  # noqa: PLC0415  (needs Faust)

    async def run() -> None:
        app = FoldingApp("comparison", store="memory://")
        waiting = app.FlowControlQueue(maxsize=8, clear_on_resume=True)
        app.flow_control.resume()  # the tables are restored
        waiting.put_nowait("a record")
        app.flow_control.resume()  # they are whole
        assert waiting.qsize() == 1
        app.flow_control.suspend()  # a rebalance
        app.flow_control.resume()
        assert waiting.empty()

    asyncio.run(run())
