"""Why figures miss the limits of `benchmarks.claims`, by the log's profiles: Markdown for docs/performance.md."""

READING = (
    "one thread reads the codes, a quarter of the vectors' bytes, and NumPy's product has both cores; with one thread "
    "each it takes 0.22 to 0.26 of the product. Two threads of Python over halves of the codes were slower. A kernel "
    "with threads of its own, or codes of four bits, would close the gap "
    "([log](log/2026-11-27.md#exact-search-below-its-own-product))."
)
LOOKING = (
    "the products are those of the reference; beside them 6.4 million are compared with what they have to reach, and "
    "what reaches it is sorted. A product in int8, on processors that have one (VNNI), might close the gap, at the "
    "price of a second way to search ([log](log/2026-11-28.md#targets-on-a-processor-with-avx-512-and-vnni))."
)
IMPORTS = (
    "importing takes most of it (`import_s` in the file), PyTorch alone 1.2 to 1.5 s. Of an export's 0.9 to 1.4 s, 0.1 "
    "is a client of LanceDB's that no search calls, and 0.15 are limner's own modules. Figures of nearly the same "
    "code were a fifth apart within an hour ([log](log/2026-11-28.md#targets-on-a-processor-with-avx-512-and-vnni))."
)
MEASURES = (
    "what is done with each product takes another 0.33 to 0.42 of its time: overlap-S needs the bin of each score, "
    "and the ranks two comparisons. Without overlap-S it takes 1.24 to 1.31. Threads would help the clock, not the "
    "processor's time ([log](log/2026-11-27.md#both-directions-of-an-evaluation-from-one-product))."
)
SEXTUPLES = (
    "where a tenth of the samples violate, 84 % of a step are matrix products of the network, which in fp32 allow 26 "
    "times the loop at most; the search alone is 39 to 64 times as fast. Arithmetic in bf16, or one pass of the "
    "network for search and step, would close the gap "
    "([log](log/2026-11-27.md#mnils-step-and-the-text-cnn-without-bf16-what-fp32-allows))."
)
WORDS = (
    "both do the same 73 GFLOP a batch. On AVX2, in fp32, 1.9 times is all that bare products would reach; bf16 of "
    "AVX-512, without AMX, has had 2.4 and 2.8 on two days "
    "([log](log/2026-11-27.md#mnils-step-and-the-text-cnn-without-bf16-what-fp32-allows))."
)
DEMO = (
    "its 44 epochs are 68 TFLOP. Two cores without bf16 do 0.16 a second in bare products, so 410 s at best; with it "
    "they took 521 s in all. A smaller network or fewer epochs would change what it finds "
    "([log](log/2026-11-27.md#the-demo-a-cold-search-and-evaluation-on-an-idle-machine))."
)
SUITE = (
    "a fifth of it records towers for export, and each worker takes half a minute to import and collect "
    "([log](log/2026-11-27.md#what-tests-recorded-again-because-of-a-folders-name))."
)
