"""What a person who waits for a broker is told."""

from __future__ import annotations

from millstream.topics.answer_watch import QUIET_SECONDS, AnswerWatch

AWAY = "Kafka at host:9092 does not answer; waiting for up to 30 s, Ctrl-C ends (refused)"


def test_silence_is_told_once_and_its_end_once() -> None:
    said: list[str] = []
    watch = AnswerWatch("host:9092", said.append)
    for second in range(100, 110):
        watch.waits(100.0, float(second), 30, "refused")
    assert said == [AWAY]
    watch.answered(112.0)
    watch.answered(113.0)
    assert said[1:] == ["Kafka at host:9092 answers again, after 12 s"]


def test_slow_broker_that_answers_now_and_then_is_not_silent() -> None:
    said: list[str] = []
    watch = AnswerWatch("host:9092", said.append)
    now = 100.0
    for _ in range(20):
        watch.answered(now)
        now += 0.9 * QUIET_SECONDS
        watch.waits(100.0, now, 30, "")
    assert said == []
    watch.waits(100.0, now + QUIET_SECONDS, 30, "")
    assert said == [AWAY.removesuffix(" (refused)")]
