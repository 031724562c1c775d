"""The suite's own judgement, without any engine: `python -m unittest` in this folder."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "vllm"))

from compare import distance, first_difference, match, none_alone, summary  # noqa: E402
from connectors import CONNECTORS, Options  # noqa: E402
from report import Line, Report  # noqa: E402
from shapes import boundary_lengths, layer_types, needed_bytes  # noqa: E402

PAGE = 32 * 2 * 2 * 64 * 4


class CompareTest(unittest.TestCase):
    def test_the_first_difference(self) -> None:
        for wanted, got, at in (([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([1], [], 0)):
            self.assertEqual(first_difference(wanted, got), at)

    def test_an_answer_that_ended_with_an_error_is_not_the_same(self) -> None:
        reference = {"tokens": [1], "finish": "length"}
        self.assertTrue(match(1, reference, reference).same)
        self.assertTrue(match(2, reference, {**reference, "ready_s": 0.5}).took_over)
        self.assertFalse(match(1, reference, {"tokens": [1], "finish": "error"}).same)
        self.assertFalse(match(1, reference, {"finish": "refused"}).same)

    def test_right_tokens_that_d_computed_alone_prove_nothing(self) -> None:
        reference = {"tokens": [1], "finish": "length"}
        alone, handed = match(2, reference, reference), match(2, reference, {**reference, "ready_s": 0.5})
        self.assertFalse(none_alone([handed, alone]))
        self.assertTrue(none_alone([handed, match(1, reference, reference)]))
        self.assertEqual(summary([handed, alone]), "2 of 2 the same; 1 computed by D alone")

    def test_log_probabilities_count_up_to_the_first_difference(self) -> None:
        reference = {"tokens": [1, 2, 3], "logprobs": [{"1": -1.0}, {"2": -1.0, "5": -2.0}, {"3": -1.0}]}
        answer = {"tokens": [1, 5, 3], "logprobs": [{"1": -1.25}, {"2": -1.5, "5": -1.0}, {"3": -9.0}]}
        self.assertEqual(distance(reference, answer), 1.0)


class ShapesTest(unittest.TestCase):
    def test_layers(self) -> None:
        for kind, windowed, full in (("hybrid", 4, 2), ("padded", 5, 2), ("uniform", 0, 6)):
            types = layer_types(kind)
            self.assertEqual(types.count("sliding_attention"), windowed)
            self.assertEqual(types.count("full_attention"), full)

    def test_a_boundary_is_where_the_window_begins_with_a_blocks_last_token(self) -> None:
        self.assertEqual(boundary_lengths(32, 200), [95, 127, 159, 191])

    def test_bytes_that_the_last_query_sees(self) -> None:
        # 300 tokens: ten blocks of each full layer; of each windowed one the tokens 236 to 298, blocks 7 to 9.
        self.assertEqual(needed_bytes("hybrid", 300, 32, "float32"), (2 * 10 + 4 * 3) * PAGE)
        # At a boundary the window's first token, 32, begins a block; one earlier it would end one.
        self.assertEqual(needed_bytes("hybrid", 96, 32, "float32"), (2 * 3 + 4 * 2) * PAGE)
        self.assertEqual(needed_bytes("hybrid", 95, 32, "float32"), (2 * 3 + 4 * 3) * PAGE)
        self.assertEqual(needed_bytes("padded", 1, 32, "float32"), 0)


class ConnectorsTest(unittest.TestCase):
    def test_options_get_each_connectors_names(self) -> None:
        options = Options(policy="recompute", lease_seconds=2)
        ours = CONNECTORS["kvferry"].config("kv_producer", options, 77)
        self.assertEqual(ours["kv_connector_extra_config"], {"lease_seconds": 2, "listen": "127.0.0.1:77"})
        theirs = CONNECTORS["nixl"].config("kv_producer", options, 77)
        self.assertEqual(theirs["kv_connector_extra_config"], {"kv_lease_duration": 2})
        self.assertEqual(theirs["kv_load_failure_policy"], "recompute")

    def test_refusals_are_found_by_what_they_name(self) -> None:
        says = CONNECTORS["kvferry"].says_why("blocks")
        self.assertTrue(says.search("block_size differs: 64 here, 32 at the peer"))
        self.assertFalse(says.search("block_size differs: 64 here"))
        self.assertFalse(CONNECTORS["nixl"].says_why("blocks").search("anything, also nothing"))


class ReportTest(unittest.TestCase):
    def test_a_control_that_nothing_failed_is_told(self) -> None:
        report = Report("nixl", lines=[Line("a.1", True, "", "a"), Line("a.2", False, "", "a"), Line("b", True, "", "b")])
        self.assertEqual((report.failed(), report.unseen()), (0, ["b"]))
        self.assertEqual(report.summary(), "1 failed as known\n2 passed, 1 failed")
        report.lines.append(Line("c", False, "", None))
        self.assertEqual(report.failed(), 1)
        self.assertEqual(report.summary().splitlines()[-1], "2 passed, 2 failed")

    def test_the_table_has_a_row_for_each_run(self) -> None:
        report = Report("kvferry", figures={"a": {"cpu_s": 1}, "b": {"cpu_s": 2, "more": 3}})
        self.assertEqual(report.table(), "| run | cpu s | more |\n| --- | --- | --- |\n| a | 1 |  |\n| b | 2 | 3 |\n")


if __name__ == "__main__":
    unittest.main()
