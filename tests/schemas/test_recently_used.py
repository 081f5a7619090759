from millstream.schemas.recently_used import RecentlyUsed


def test_least_recently_used_goes_first() -> None:
    kept = RecentlyUsed[str, int](2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (1, None, 3)


def test_weights_count_together() -> None:
    kept = RecentlyUsed[str, str](10)
    kept.put("a", "x", 4)
    kept.put("b", "x", 4)
    kept.put("a", "y", 2)  # takes the place of the one before
    kept.put("c", "x", 4)
    assert len(kept) == 3
    kept.put("d", "x", 1)
    assert (kept.get("b"), kept.get("a")) == (None, "y")


def test_value_that_is_too_heavy_is_kept_alone() -> None:
    kept = RecentlyUsed[str, str](10)
    kept.put("a", "x", 4)
    kept.put("b", "x", 40)
    assert (kept.get("a"), kept.get("b"), len(kept)) == (None, "x", 1)
    kept.put("c", "x", 1)
    assert (kept.get("b"), kept.get("c")) == (None, "x")


def test_dropped_value_is_gone_with_its_weight() -> None:
    kept = RecentlyUsed[str, str](4)
    kept.put("a", "x", 4)
    kept.drop("a")
    kept.drop("a")
    kept.put("b", "x", 2)
    kept.put("c", "x", 2)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (None, "x", "x")
