"""Results of micro-batches in flight are passed on so that the write thread can note one next offset for each message."""

import threading
from queue import SimpleQueue

from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.events import ResultQueue
from millstream.consumers.execute.flights import Flights
from millstream.consumers.execute.result_buffer import ResultBuffer
from tests.consumers.in_memory import answered, batch_of


@given(st.permutations(range(8)), st.lists(st.integers(1, 8), min_size=8, max_size=8))
def test_each_message_has_consecutive_batches(order: list[int], together: list[int]) -> None:
    answers: ResultQueue = SimpleQueue()
    flights = Flights(ResultBuffer(answers), ordering="none", abandon=threading.Event())
    for _ in order:
        flights.depart(batch_of("e"), lambda: 100)
    left = list(order)
    for count in together:
        landed, left = left[:count], left[count:]
        flights.land(*(answered("e")._replace(number=number) for number in landed))
    messages = [answers.get() for _ in range(answers.qsize())]
    numbers = [[one.number for one in message] for message in messages if isinstance(message, list)]
    assert [number for message in numbers for number in message] == order
    assert all(message == list(range(message[0], message[0] + len(message))) for message in numbers)
