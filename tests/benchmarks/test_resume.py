"""The kill points are spread as promised."""

from __future__ import annotations

from collections import Counter

from benchmarks import resume


def test_the_points_are_seeded_and_hit_every_phase_and_every_choice_of_ranks():
    chosen = resume.points(resume.POINTS)
    assert chosen == resume.points(resume.POINTS) != resume.points(resume.POINTS, seed=1)
    assert Counter(point.phase for point in chosen) == {"save": 5, "export": 5, "step": 10}
    assert {point.victims for point in chosen} == {(0, 1), (0,), (1,)}
    assert all(1 <= point.step < resume.STEPS for point in chosen)
    assert len({resume.described(point) for point in chosen}) == len(chosen)
