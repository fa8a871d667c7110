"""The page of performance is made of the results that are kept, and the tables of the benchmarks agree with what they measure."""

import importlib
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import curves, goals, page, rounds
from tests.builders import every


def test_page_is_made_of_results():
    results = page.kept()
    old = page.PAGE.read_text(encoding="utf-8")
    assert page.page(results, old) == old
    for name, drawn in page.plots(results).items():
        assert (page.FOLDER / name).read_text(encoding="utf-8") == drawn
        assert f"(performance/{name})" in old


def test_goals_of_page_are_those_of_the_table_in_three_rounds():
    cases = {f"{goal.name} / {goal.against}" for goal in goals.GOALS}
    assert len(cases) == len(goals.GOALS)
    pythons, found = page.rounds_of(page.kept())
    assert len(pythons) == 2
    assert found.keys() == cases
    assert {case for case, by_python in found.items() if by_python.keys() != set(pythons)} == set()
    few = [case for case, own in found.items() if min(map(len, own.values())) < 3]
    assert few == []


@pytest.mark.parametrize("name", ["tree.map", "construct a schema's struct that holds 12"])
def test_goal_is_measured_against_its_reference(name, tmp_path):
    goal = next(goal for goal in goals.GOALS if goal.name == name)
    _, reference = goal.jobs(tmp_path)
    assert reference == goal.against
    found = goals.measured(goal, 0.01)
    assert found["goal"] == goal.limit
    assert 0 < found["low"] <= found["ratio"] <= found["high"]


def test_missed_goals_are_marked():
    def run(ratio):
        return {"python": "3.13.0", "goals": {"load / np.load": {"ratio": ratio, "goal": 1.2}}}

    assert "| **1.3** (1.1 to 1.5) |" in page.goals_table({"goals": [run(1.5), run(1.1), run(1.3)]})
    assert "| 1.1 |" in page.goals_table({"goals": [run(1.1)]})
    assert page.missed({"goals": [run(1.5), run(1.1), run(1.3)]}) == {"load"}
    assert page.missed({"goals": [run(1.5), run(1.1), run(1.2)]}) == set()


def test_missed_goals_are_explained_on_the_page():
    text = page.PAGE.read_text(encoding="utf-8")
    section = text.partition("## Where a goal is missed")[2].partition("\n## ")[0]
    named = set(re.findall(r"\*([^*\n]+)\*[,)]", section))
    assert named <= {goal.name for goal in goals.GOALS}
    assert page.missed(page.kept()) <= named


def test_slopes_and_crossings():
    linear = {1: 10.0, 10: 100.0, 100: 1000.0}
    flat = {1: 50.0, 10: 50.0, 100: 50.0}
    assert curves.slope(linear) == pytest.approx(1)
    assert curves.slope(flat) == pytest.approx(0)
    assert curves.crossings(flat, linear) == [(5, True)]
    assert curves.crossings(linear, flat) == [(5, False)]
    assert curves.crossings(flat, flat) == []


def test_plot_is_xml_with_a_line_for_each_candidate():
    drawn = ET.fromstring(
        page.plot({"ours": {1: 2.0, 10: 30.0}, "<x>": {1: 3.0, 10: 4.0}}, "arrays")
    )
    texts = [node.text for node in drawn.iter() if node.tag.endswith("text")]
    assert {"ours", "<x>", "arrays", "10 µs"} <= set(texts)


def test_calls_of_a_block_suit_the_job():
    found = rounds.measure({"ours": lambda: None, "theirs": lambda: None}, "theirs", 3)
    assert found["theirs"]["ratio"] == 1


@every("suite", command.SUITES)
def test_suite_is_a_module_with_a_command(suite):
    module = importlib.import_module(f"benchmarks.{suite}")
    assert (
        Path(module.__file__).read_text(encoding="utf-8").count('if __name__ == "__main__":') == 1
    )
