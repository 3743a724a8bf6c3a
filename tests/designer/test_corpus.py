"""Grounding documents: reading, cutting, drawing, quotas, and what is wrong with a file."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from designer import Archive, Corpus, CorpusError, Designer
from designer.corpus import MAX_WORDS


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_both_names_of_the_text_are_read_and_an_id_is_kept(tmp_path):
    path = written(
        tmp_path / "c.jsonl",
        {"text": "one"},
        {"orig_doc": "two", "id": 7},
        {"id": "", "text": "x"},
    )
    corpus = Corpus(path)
    assert [corpus[i].text for i in range(len(corpus))] == ["one", "two", "x"]
    assert corpus[1].document_id == "7"
    assert len(corpus[0].document_id) == len(corpus[2].document_id) == 16


def test_a_document_is_cut_after_so_many_words_and_its_space_stays(tmp_path):
    text = " ".join(f"w{i}" for i in range(MAX_WORDS + 50))
    corpus = Corpus(written(tmp_path / "c.jsonl", {"text": text}))
    assert corpus[0].text.split() == text.split()[:MAX_WORDS]
    short = Corpus(written(tmp_path / "d.jsonl", {"text": "a\n\n  b c"}), max_words=2)
    assert short[0].text == "a\n\n  b"


def test_blank_lines_and_a_missing_last_newline_are_fine(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('\n{"text": "one"}\n   \n{"text": "two"}')
    assert [Corpus(path)[i].text for i in range(2)] == ["one", "two"]


def test_half_characters_do_not_reach_a_prompt(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "a \\ud800 b"}\n')
    Corpus(path)[0].text.encode()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 2 is not JSON"),
        (b"[1]", "line 2 is list"),
        (b'"text"', "line 2 is str"),
        (b'{"body": "x", "n": 1}', "it has 'body', 'n'"),
        (b'{"text": 5}', "no text under"),
        (b'{"text": "  "}', "line 2 has an empty text"),
        (b'{"text": "\xff"}', "line 2 is not UTF-8"),
    ],
)
def test_a_line_that_is_no_document_is_named(tmp_path, line, said):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(CorpusError, match=said) as raised:
        Corpus(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_or_empty_or_a_folder_is_named(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    for name in ("none.jsonl", "empty.jsonl", "."):
        with pytest.raises(CorpusError, match="corpus"):
            Corpus(tmp_path / name)


def test_a_line_without_end_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("designer.corpus.MAX_LINE_BYTES", 100)
    path = written(tmp_path / "c.jsonl", {"text": "x" * 200})
    with pytest.raises(CorpusError, match="longer than 100 bytes"):
        Corpus(path)


def test_draws_are_uniform_and_the_same_for_the_same_seed(tmp_path):
    corpus = Corpus(written(tmp_path / "c.jsonl", *({"text": f"t{i}"} for i in range(5))))
    draws = [corpus.draw(random.Random(seed)).text for seed in range(2000)]
    assert draws == [corpus.draw(random.Random(seed)).text for seed in range(2000)]
    assert all(320 < count < 480 for count in Counter(draws).values())


def test_no_document_passes_its_quota_before_all_have_reached_it(tmp_path):
    corpus = Corpus(written(tmp_path / "c.jsonl", *({"text": f"t{i}"} for i in range(4))))
    rng = random.Random(0)
    used: Counter[str] = Counter()
    for number in range(1, 25):
        used[corpus.draw(rng, used, quota=2).document_id] += 1
        assert max(used.values()) <= 2 * (1 + (number - 1) // 8)
    assert set(used.values()) == {6}


def test_the_embedded_corpus_is_small_and_varied():
    corpus = Corpus.named("embedded")
    documents = [corpus[i] for i in range(len(corpus))]
    assert 20 <= len({d.document_id for d in documents}) == len(documents) <= 30
    words = [set(d.text.lower().split()) for d in documents]
    assert all(80 < len(d.text.split()) < 400 for d in documents)
    overlaps = [len(a & b) / len(a | b) for i, a in enumerate(words) for b in words[:i]]
    assert max(overlaps) < 0.35


def test_quotas_hold_over_steps_and_a_step_asked_again_asks_the_same():
    def documents(archive: Archive) -> list[str]:
        designer = Designer(
            None, archive, method="free_code", corpus=Corpus.named("embedded"), document_quota=1
        )
        asked = []
        for step in range(3):
            requests = designer.requests(8, step)
            for request in requests:
                report = _refused(designer, request)
                designer.remember(report, step)
            asked += [request.document for request in requests]
        return asked

    with Archive(":memory:") as one, Archive(":memory:") as two:
        first = documents(one)
        assert len(set(first)) == 24
        assert documents(two) == first
        # As a run that resumes at the last step: what that step drew does not count.
        resumed = Designer(
            None, one, method="free_code", corpus=Corpus.named("embedded"), document_quota=1
        )
        resumed.rewind(1)
        assert [r.document for r in resumed.requests(8, 2)] == first[16:]


def _refused(designer: Designer, request):
    from designer import GateReport

    return GateReport(designer.parse(request, "no program"), "PARSE")
