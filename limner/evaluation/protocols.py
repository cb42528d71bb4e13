"""The protocols of the field as data: what a text is, what matches, over which folds, and which measures are reported.

A protocol takes results, whoever made them, and gives a report; that any of them is applied to another dataset than its
own is up to the caller, and the report says which it was.

**Decided** of MNiL's: the paper says how many pairs are the query set and not what they search; here the pairs of a
split search among each other. It reports means of ten random draws; here one sentence of each image is drawn once.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int, Integer

from limner.errors import DataError, SettingsError
from limner.evaluation.arrays import Results
from limner.evaluation.both_directions import evaluate, evaluate_scores
from limner.evaluation.measures import STANDARD
from limner.evaluation.names import AnyMeasure, parse_measures
from limner.evaluation.report import LanguageReport, Report
from limner.evaluation.reranking import ClassReranking, PairReranking

Texts = Literal["sentences", "one sentence an image", "class means"]
Match = Literal["groups", "labels"]

# Names, not values: a protocol is data, and a report, a file and the command line have the same names.
_CAPTIONS = " ".join(map(str, STANDARD))
_PERSONS = f"{_CAPTIONS} mINP"
_LABELS = "MAP@50 MAP@all PR-curve scope-curve"


@dataclass(frozen=True)
class Protocol:
    """One way to evaluate.

    - `name`: as `--protocol` and reports have it; `source`: where it is laid down.
    - `measures`: what is reported unless something else is asked for, names with blanks between them; `to_image` has
      those of text→image where they are others.
    - `texts`: "sentences", each for itself; "one sentence an image", drawn with seed 0; or "class means", the mean
      embedding (or score) of all sentences of a group in place of them.
    - `match`: items match that are of one group, or that share a label.
    - `folds`: values are means over so many equal runs of images.
    """

    name: str
    source: str
    measures: str = _CAPTIONS
    texts: Texts = "sentences"
    match: Match = "groups"
    folds: int = 1
    to_image: str | None = None

    @property
    def by_direction(self) -> dict[str, list[str]]:
        """The names of what each direction is measured by."""
        names = {"image_to_text": self.measures, "text_to_image": self.to_image or self.measures}
        return {way: [str(measure) for measure in parse_measures(listed)] for way, listed in names.items()}

    def measures_all(self, names: Collection[str]) -> bool:
        """True where the protocol reports all of these measures, given as "direction measure"."""
        # By direction: a protocol may report R@1 one way and AP@50 the other.
        return set(names) <= {
            f"{way} {measure}" for way, measures in self.by_direction.items() for measure in measures
        }

    def applied(self, results: Results) -> Results:
        """The results as they are ranked. Raises `DataError` for labels if the results have none."""
        # Refused: without labels the ranking would match by groups under this protocol's name.
        if self.match == "labels" and results.image_labels is None:
            raise DataError(
                f"protocol '{self.name}' matches by labels, and these results have none; they come from a dataset "
                "with labels, or from arrays 'image_labels' and 'sentence_labels'"
            )
        if self.match == "groups":
            # Dropped, so that labels in a file never decide what a protocol by groups matches.
            results = replace(results, image_labels=None, sentence_labels=None)
        if self.texts == "one sentence an image":
            # A sentence is drawn a group, so it is one an image only where groups are images.
            if len(np.unique(results.image_groups)) < len(results.image_groups):
                raise DataError(
                    f"protocol '{self.name}' takes one sentence of each image, and these have groups of several"
                )
            return results.with_sentences(_drawn(results.sentence_groups))
        return _class_means(results) if self.texts == "class means" else results

    def report(
        self,
        results: Results,
        measures: Sequence[AnyMeasure] | None = None,
        *,
        split: str = "as given",
        same: str = "group",
        splits: str = "",
        folds: int | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Report:
        """Both directions; `measures` and `folds` in place of the protocol's own.

        `same` says what a group is, e.g. "image" or "identity", `splits` how they were drawn if limner drew them. Where
        the results have languages, the report has the measures of each (see `LanguageReport`). Raises `DataError` as
        `applied` and `evaluate`.
        """
        given: dict[str, Any] = {
            "split": split,
            "same": same,
            "splits": splits,
            "folds": folds,
            "provenance": provenance,
        }
        report = self._report(results, measures, **given)
        return report.replace(languages=self._languages(results, report, measures, given))

    def _languages(
        self, results: Results, whole: Report, measures: Sequence[AnyMeasure] | None, given: Mapping[str, Any]
    ) -> dict[str, LanguageReport]:
        """The measures of each language: those of the results without the sentences of all others."""
        found: dict[str, LanguageReport] = {}
        if not whole.image_to_text and not whole.text_to_image:  # curves alone were asked for
            return found
        for tag, sentences in results.languages.items():
            # Ranked once more for each language, so not where there is nothing to leave out.
            if len(sentences) == len(results.sentence_groups):
                report = whole
            else:
                try:
                    # Before the protocol forms classes, or draws a sentence of each image.
                    report = self._report(results.with_sentences(sentences), measures, **given)
                except DataError as error:
                    # The whole was measured, perhaps after hours: one language must not take that along.
                    found[tag] = LanguageReport(counts={"sentences": len(sentences)}, problem=str(error))
                    continue
            found[tag] = LanguageReport(
                counts=report.counts,
                image_to_text=report.image_to_text,
                text_to_image=report.text_to_image,
            )
        return found

    def _report(
        self,
        results: Results,
        measures: Sequence[AnyMeasure] | None,
        *,
        split: str,
        same: str,
        splits: str,
        folds: int | None,
        provenance: Mapping[str, Any] | None,
    ) -> Report:
        ranked = self.applied(results)
        match = "shared label" if self.match == "labels" else f"same {same}"
        texts = "" if self.texts == "sentences" else self.texts
        # In the protocol's name: a re-ranked figure must not pass for one of the embedding.
        judged = "" if ranked.reranking is None else ranked.reranking.described
        given: dict[str, Any] = {
            "protocol": ", ".join(part for part in (self.name, match, texts, judged, splits) if part),
            "split": split,
            "extra": provenance,
            # Both directions take all names in one ranking; `_by_direction` then keeps what each reports.
            "measures": parse_measures(f"{self.measures} {self.to_image or ''}")
            if measures is None
            else measures,
            "folds": self.folds if folds is None else folds,
            "labels": ranked.labels,
        }
        groups = ranked.image_groups, ranked.sentence_groups
        if ranked.scores is not None:
            report = evaluate_scores(ranked.scores, *groups, **given)
        else:
            assert ranked.images is not None
            assert ranked.sentences is not None
            report = evaluate(ranked.images, ranked.sentences, *groups, **given, reranking=ranked.reranking)
        names = {"image_to_text": ranked.image_names, "text_to_image": ranked.sentence_names}
        report = report.replace(
            queries={way: replace(queries, names=names[way]) for way, queries in report.queries.items()},
        )
        # Measures that a user asked for by name are shown both ways.
        return report if self.to_image is None or measures is not None else self._by_direction(report)

    def _by_direction(self, report: Report) -> Report:
        """Only what each direction is measured by: of one text a class, AP@50 of image→text would be a constant."""
        to_text, to_image = self.by_direction.values()
        return report.replace(
            image_to_text={name: report.image_to_text[name] for name in to_text},
            text_to_image={name: report.text_to_image[name] for name in to_image},
            intervals={
                way: {name: ends for name, ends in named.items() if name in self.by_direction[way]}
                for way, named in report.intervals.items()
            },
            chance={
                way: {name: level for name, level in named.items() if name in self.by_direction[way]}
                for way, named in report.chance.items()
            },
            ties={
                way: {name: tied for name, tied in named.items() if name in self.by_direction[way]}
                for way, named in report.ties.items()
            },
            queries={
                way: replace(
                    queries,
                    values={
                        name: values
                        for name, values in queries.values.items()
                        if name in self.by_direction[way]
                    },
                )
                for way, queries in report.queries.items()
            },
        )


def _drawn(groups: Integer[np.ndarray, " sentences"]) -> Int[np.ndarray, " groups"]:
    """Positions of one sentence a group, ascending."""
    order = np.argsort(groups, kind="stable")
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    # One number a group, whatever its size: another sentence in one group moves no other group's draw.
    places = (np.random.default_rng(0).random(len(starts)) * counts).astype(np.int64)
    # Ascending: the sentences stay in the order of their images.
    return np.sort(order[starts + places])


def _class_means(results: Results) -> Results:
    """One text a group: the mean of its sentences, not normalised again (its compatibility is their mean)."""
    groups, member = np.unique(results.sentence_groups, return_inverse=True)
    sizes = np.bincount(member)[:, None]

    def mean(rows: Float[np.ndarray, "sentences columns"]) -> Float[np.ndarray, "groups columns"]:
        total = np.zeros((len(groups), rows.shape[1]))
        # In float64: `total` is made without a type, and a sum of hundreds of float16 rows would lose digits.
        np.add.at(total, member, rows)
        return np.asarray(total / sizes, dtype=np.promote_types(rows.dtype, np.float32))

    return replace(
        results,
        sentence_groups=groups,
        sentences=None if results.sentences is None else mean(results.sentences),
        # Over columns, hence turned twice.
        scores=None if results.scores is None else mean(results.scores.T).T,
        sentence_names=[f"class{group}" for group in groups],
        # A class has sentences of several.
        sentence_languages=(),
        reranking=_of_classes(results, member, len(groups)),
    )


def _of_classes(
    results: Results, member: Int[np.ndarray, " sentences"], classes: int
) -> ClassReranking | None:
    # A ClassReranking was made for classes already and has no sentences left to average.
    if not isinstance(results.reranking, PairReranking):
        return None
    assert results.images is not None
    assert results.sentences is not None
    members = [np.flatnonzero(member == number) for number in range(classes)]
    return ClassReranking(results.reranking, members, results.images, results.sentences)


_ALL = (
    Protocol("plain", "every sentence and every image is a query; the user's own pictures"),
    Protocol("flickr8k", "Hodosh, Young and Hockenmaier, JAIR 2013; 1,000 test images, 5 sentences each"),
    Protocol("flickr30k", "Young et al., TACL 2014; 1,000 test images, 5 sentences each"),
    Protocol("mscoco-5k", "Karpathy and Fei-Fei, CVPR 2015; all 5,000 test images"),
    # The same test images as 5K, in five galleries of a fifth: figures of the two do not compare.
    Protocol("mscoco-1k", "Karpathy and Fei-Fei, CVPR 2015; five folds of 1,000 test images", folds=5),
    Protocol("cuhk-pedes", "Li et al., CVPR 2017; 3,074 test images of 1,000 persons", _PERSONS),
    Protocol("icfg-pedes", "Ding et al., 2021; 19,848 test images of 1,000 persons", _PERSONS),
    Protocol("rstpreid", "Zhu et al., MM 2021; 1,000 test images of 200 persons", _PERSONS),
    Protocol("ufine6926", "Zuo et al., CVPR 2024; the test split of UFine6926, or UFine3C", _PERSONS),
    Protocol("vn3k", "Pham et al., Multimedia Tools and Applications 2022; 3000VnPersonSearch", _PERSONS),
    Protocol("prw-tps-cn", "Wu and Ma, 2023; cropped pictures, not whole scenes", _PERSONS),
    Protocol("cub", "Reed et al., CVPR 2016; 50 test classes", "R@1", texts="class means", to_image="AP@50"),
    Protocol(
        "flowers", "Reed et al., CVPR 2016; 20 test classes", "R@1", texts="class means", to_image="AP@50"
    ),
    # For sets without labels: MNiL itself matches by category.
    Protocol("classes", "MNiL's measures by group; every sentence and every image is a query", _LABELS),
    Protocol(
        "labels",
        "MNiL's measures on any set with labels; every sentence and every image is a query",
        _LABELS,
        match="labels",
    ),
    Protocol(
        "mnil-mscoco",
        "MNiL, MM 2017, section 4; 5,000 image-sentence pairs",
        _LABELS,
        texts="one sentence an image",
        match="labels",
    ),
    Protocol(
        "mnil-flickr30k",
        "MNiL, MM 2017, section 4; 1,000 image-sentence pairs",
        "R@1 R@5 R@10",
        texts="one sentence an image",
    ),
)

PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in _ALL}
"""Every protocol by its name."""

# MSCOCO has two protocols; the harder one, over all 5,000 images, is taken unless the other is asked for.
_OF_FORMAT = {"mscoco": "mscoco-5k", "mscoco-labels": "mnil-mscoco"}
"""A dataset's format → its protocol, where they have not the same name."""


def find_protocol(name: str) -> Protocol:
    """The protocol of a name. Raises `SettingsError` with the nearest known one."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    # At most one guess, and it is only shown: a protocol that was not named is never taken.
    near = difflib.get_close_matches(name.lower(), PROTOCOLS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(PROTOCOLS)}"
    raise SettingsError(f"unknown protocol {name[:40]!r}; {hint}")


def protocol_of(format_name: str) -> Protocol:
    """The protocol that a dataset is evaluated under unless another is asked for.

    >>> protocol_of("mscoco").name, protocol_of("folder").name
    ('mscoco-5k', 'plain')
    """
    return PROTOCOLS.get(_OF_FORMAT.get(format_name, format_name), PROTOCOLS["plain"])
