"""The works that a result made with limner rests on: papers of systems, losses, datasets and networks, as BibTeX.

Which of them a result cites is said in `limner.recipes.references`. The titles and authors of the four systems are
those of their papers; the others are written from what is known of them, and a name that is not sure is left to
"and others".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["article", "inproceedings", "techreport", "misc", "software"]


@dataclass(frozen=True)
class Reference:
    """A work to cite.

    - `authors`: "Family, Given", in the paper's order; "others" at the end where there are more.
    - `where`: journal, proceedings or institution, in BibTeX's field of the kind; "" for `misc` and `software`.
    - `more`: other BibTeX fields, such as volume, pages, eprint.
    """

    key: str
    kind: Kind
    authors: tuple[str, ...]
    title: str
    year: int
    where: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    def bibtex(self) -> str:
        """The entry, its fields in a fixed order."""
        place = {"article": "journal", "inproceedings": "booktitle", "techreport": "institution"}
        fields = {"author": " and ".join(self.authors), "title": f"{{{self.title}}}"}
        if self.kind in place:
            fields[place[self.kind]] = self.where
        fields |= {"year": str(self.year), **self.more}
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
        return "\n".join([f"@{self.kind}{{{self.key},", *lines, "}"])


def _article(key: str, authors: str, title: str, journal: str, year: int, **more: str) -> Reference:
    return Reference(key, "article", _names(authors), title, year, journal, more)


def _paper(key: str, authors: str, title: str, proceedings: str, year: int, **more: str) -> Reference:
    return Reference(key, "inproceedings", _names(authors), title, year, proceedings, more)


def _preprint(key: str, authors: str, title: str, year: int, eprint: str) -> Reference:
    return Reference(
        key, "misc", _names(authors), title, year, more={"eprint": eprint, "archiveprefix": "arXiv"}
    )


def _names(authors: str) -> tuple[str, ...]:
    return tuple(authors.split("; "))


_CVPR = "IEEE/CVF Conference on Computer Vision and Pattern Recognition"
_ICCV = "IEEE/CVF International Conference on Computer Vision"
_ECCV = "European Conference on Computer Vision"
_MM = "ACM International Conference on Multimedia"
_ICML = "International Conference on Machine Learning"
_NEURIPS = "Advances in Neural Information Processing Systems"

_ENTRIES = (
    # the four systems
    _article(
        "zheng2020dual",
        "Zheng, Zhedong; Zheng, Liang; Garrett, Michael; Yang, Yi; Xu, Mingliang; Shen, Yi-Dong",
        "Dual-path Convolutional Image-Text Embeddings with Instance Loss",
        "ACM Transactions on Multimedia Computing, Communications, and Applications",
        2020,
        volume="16",
        number="2",
        doi="10.1145/3383184",
        eprint="1711.05535",
        archiveprefix="arXiv",
    ),
    _paper(
        "li2017identity",
        "Li, Shuang; Xiao, Tong; Li, Hongsheng; Yang, Wei; Wang, Xiaogang",
        "Identity-Aware Textual-Visual Matching with Latent Co-attention",
        _ICCV,
        2017,
        eprint="1708.01988",
        archiveprefix="arXiv",
    ),
    _paper(
        "zhang2017multi",
        "Zhang, Liang; Ma, Bingpeng; Li, Guorong; Huang, Qingming; Tian, Qi",
        "Multi-Networks Joint Learning for Large-Scale Cross-Modal Retrieval",
        _MM,
        2017,
        doi="10.1145/3123266.3123317",
    ),
    _paper(
        "zheng2020hierarchical",
        "Zheng, Kecheng; Liu, Wu; Liu, Jiawei; Zha, Zheng-Jun; Mei, Tao",
        "Hierarchical Gumbel Attention Network for Text-based Person Search",
        _MM,
        2020,
        doi="10.1145/3394171.3413864",
    ),
    # losses and other parts
    _paper(
        "jiang2023cross",
        "Jiang, Ding; Ye, Mang",
        "Cross-Modal Implicit Relation Reasoning and Aligning for Text-to-Image Person Retrieval",
        _CVPR,
        2023,
    ),
    _paper(
        "radford2021learning",
        "Radford, Alec; others",
        "Learning Transferable Visual Models From Natural Language Supervision",
        _ICML,
        2021,
    ),
    _paper(
        "zhai2023sigmoid",
        "Zhai, Xiaohua; Mustafa, Basil; Kolesnikov, Alexander; Beyer, Lucas",
        "Sigmoid Loss for Language Image Pre-Training",
        _ICCV,
        2023,
    ),
    _paper(
        "qin2024noisy",
        "Qin, Yang; others",
        "Noisy-Correspondence Learning for Text-to-Image Person Re-identification",
        _CVPR,
        2024,
    ),
    _paper(
        "sun2020circle",
        "Sun, Yifan; others",
        "Circle Loss: A Unified Perspective of Pair Similarity Optimization",
        _CVPR,
        2020,
    ),
    _paper(
        "zhang2018deep",
        "Zhang, Ying; Lu, Huchuan",
        "Deep Cross-Modal Projection Learning for Image-Text Matching",
        _ECCV,
        2018,
    ),
    _paper(
        "yao2022filip",
        "Yao, Lewei; others",
        "FILIP: Fine-grained Interactive Language-Image Pre-Training",
        "International Conference on Learning Representations",
        2022,
    ),
    _paper(
        "khattab2020colbert",
        "Khattab, Omar; Zaharia, Matei",
        "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over BERT",
        "ACM SIGIR Conference on Research and Development in Information Retrieval",
        2020,
    ),
    # networks
    _paper(
        "he2016deep",
        "He, Kaiming; Zhang, Xiangyu; Ren, Shaoqing; Sun, Jian",
        "Deep Residual Learning for Image Recognition",
        _CVPR,
        2016,
    ),
    _paper(
        "sandler2018mobilenetv2",
        "Sandler, Mark; Howard, Andrew; Zhu, Menglong; Zhmoginov, Andrey; Chen, Liang-Chieh",
        "MobileNetV2: Inverted Residuals and Linear Bottlenecks",
        _CVPR,
        2018,
    ),
    _paper(
        "simonyan2015very",
        "Simonyan, Karen; Zisserman, Andrew",
        "Very Deep Convolutional Networks for Large-Scale Image Recognition",
        "International Conference on Learning Representations",
        2015,
    ),
    _paper("szegedy2015going", "Szegedy, Christian; others", "Going Deeper with Convolutions", _CVPR, 2015),
    _article(
        "russakovsky2015imagenet",
        "Russakovsky, Olga; others",
        "ImageNet Large Scale Visual Recognition Challenge",
        "International Journal of Computer Vision",
        2015,
        volume="115",
    ),
    _paper(
        "devlin2019bert",
        "Devlin, Jacob; Chang, Ming-Wei; Lee, Kenton; Toutanova, Kristina",
        "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        "Conference of the North American Chapter of the Association for Computational Linguistics",
        2019,
    ),
    _paper(
        "wang2020minilm",
        "Wang, Wenhui; others",
        "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
        _NEURIPS,
        2020,
    ),
    _paper(
        "reimers2019sentence",
        "Reimers, Nils; Gurevych, Iryna",
        "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
        "Conference on Empirical Methods in Natural Language Processing",
        2019,
    ),
    _preprint(
        "tschannen2025siglip",
        "Tschannen, Michael; others",
        "SigLIP 2: Multilingual Vision-Language Encoders with Improved Semantic Understanding, Localization, and Dense "
        "Features",
        2025,
        "2502.14786",
    ),
    _preprint(
        "chen2022altclip",
        "Chen, Zhongzhi; others",
        "AltCLIP: Altering the Language Encoder in CLIP for Extended Language Capabilities",
        2022,
        "2211.06679",
    ),
    _preprint(
        "yang2022chinese",
        "Yang, An; others",
        "Chinese CLIP: Contrastive Vision-Language Pretraining in Chinese",
        2022,
        "2211.01335",
    ),
    # datasets
    _article(
        "hodosh2013framing",
        "Hodosh, Micah; Young, Peter; Hockenmaier, Julia",
        "Framing Image Description as a Ranking Task: Data, Models and Evaluation Metrics",
        "Journal of Artificial Intelligence Research",
        2013,
        volume="47",
    ),
    _article(
        "young2014image",
        "Young, Peter; Lai, Alice; Hodosh, Micah; Hockenmaier, Julia",
        "From Image Descriptions to Visual Denotations: New Similarity Metrics for Semantic Inference over Event "
        "Descriptions",
        "Transactions of the Association for Computational Linguistics",
        2014,
        volume="2",
    ),
    _paper(
        "lin2014microsoft", "Lin, Tsung-Yi; others", "Microsoft COCO: Common Objects in Context", _ECCV, 2014
    ),
    _paper(
        "li2017person",
        "Li, Shuang; Xiao, Tong; Li, Hongsheng; Zhou, Bolei; Yue, Dayu; Wang, Xiaogang",
        "Person Search with Natural Language Description",
        _CVPR,
        2017,
    ),
    _preprint(
        "ding2021semantically",
        "Ding, Zefeng; Ding, Changxing; Shao, Zhiyin; Tao, Dacheng",
        "Semantically Self-Aligned Network for Text-to-Image Part-aware Person Re-identification",
        2021,
        "2107.12666",
    ),
    _paper(
        "zhu2021dssl",
        "Zhu, Aichun; others",
        "DSSL: Deep Surroundings-person Separation Learning for Text-based Person Retrieval",
        _MM,
        2021,
    ),
    _paper(
        "zuo2024ufinebench",
        "Zuo, Jialong; others",
        "UFineBench: Towards Text-based Person Retrieval with Ultra-fine Granularity",
        _CVPR,
        2024,
    ),
    _article(
        "pham2022towards",
        "Pham, Thi Thanh Thuy; others",
        "Towards a Large-Scale Person Search by Vietnamese Natural Language: Dataset and Methods",
        "Multimedia Tools and Applications",
        2022,
        volume="81",
    ),
    _preprint(
        "wu2023prototype",
        "Wu, Ziqiang; Ma, Bingpeng",
        "Prototype-Guided Text-based Person Search based on Rich Chinese Descriptions",
        2023,
        "2312.14834",
    ),
    _paper(
        "zuo2024plip",
        "Zuo, Jialong; others",
        "PLIP: Language-Image Pre-training for Person Representation Learning",
        _NEURIPS,
        2024,
    ),
    _paper(
        "yang2023towards",
        "Yang, Shuyu; others",
        "Towards Unified Text-based Person Retrieval: A Large-scale Multi-Attribute and Language Search Benchmark",
        _MM,
        2023,
    ),
    _paper(
        "tan2024harnessing",
        "Tan, Wentao; others",
        "Harnessing the Power of MLLMs for Transferable Text-to-Image Person ReID",
        _CVPR,
        2024,
    ),
    _paper(
        "zheng2025gradient",
        "Zheng, Tianlu; others",
        "Gradient-Attention Guided Dual-Masking Synergetic Framework for Robust Text-based Person Retrieval",
        "Conference on Empirical Methods in Natural Language Processing",
        2025,
    ),
    Reference(
        "wah2011caltech",
        "techreport",
        _names("Wah, Catherine; Branson, Steve; Welinder, Peter; Perona, Pietro; Belongie, Serge"),
        "The Caltech-UCSD Birds-200-2011 Dataset",
        2011,
        "California Institute of Technology",
        {"number": "CNS-TR-2011-001"},
    ),
    _paper(
        "reed2016learning",
        "Reed, Scott; Akata, Zeynep; Lee, Honglak; Schiele, Bernt",
        "Learning Deep Representations of Fine-Grained Visual Descriptions",
        _CVPR,
        2016,
    ),
    _paper(
        "nilsback2008automated",
        "Nilsback, Maria-Elena; Zisserman, Andrew",
        "Automated Flower Classification over a Large Number of Classes",
        "Indian Conference on Computer Vision, Graphics and Image Processing",
        2008,
    ),
    _paper(
        "liu2021image",
        "Liu, Zheyuan; Rodriguez-Opazo, Cristian; Teney, Damien; Gould, Stephen",
        "Image Retrieval on Real-Life Images with Pre-Trained Vision-and-Language Models",
        _ICCV,
        2021,
    ),
    _paper(
        "wu2021fashion",
        "Wu, Hui; others",
        "Fashion IQ: A New Dataset Towards Retrieving Images by Natural Language Feedback",
        _CVPR,
        2021,
    ),
    _preprint(
        "liu2023word",
        "Liu, Delong; others",
        "Word for Person: Zero-shot Composed Person Retrieval",
        2023,
        "2311.16515",
    ),
)

REFERENCES: Mapping[str, Reference] = {entry.key: entry for entry in _ENTRIES}
"""Every work by its BibTeX key."""
