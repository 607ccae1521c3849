"""Table of the public data sets: file, origin, licence, rows, checksum, citation.

All are plain numbers from public repositories. CC-BY-4.0 asks to keep the named source, MIT and
Apache-2.0 their notice. The checksums are those of the files as orsched's developers use them.
"""

from __future__ import annotations

from typing import NamedTuple


class DataSet(NamedTuple):
    """One file: ``format`` is the reader's name, or None when it holds no requests."""

    file: str
    title: str
    origin: str
    licence: str
    rows: int
    format: str | None
    sha256: str
    citation: str = ""

    @property
    def attribution(self) -> str:
        """The named source, as a text to pass on with the data."""
        cite = f"; cite {self.citation}" if self.citation else ""
        return f"https://github.com/{self.origin}{cite}"


_ENTRIES = (
    DataSet(
        "gsm8k_llama_tokens.csv",
        "GSM8K test set: prompt and gold-answer lengths",
        "openai/grade-school-math",
        "MIT",
        1319,
        "pairs",
        "77098881f72bbe28106f47038f293f332e41b9cfad8764f41bf6461087be61d5",
        "Cobbe et al., Training Verifiers to Solve Math Word Problems, arXiv 2110.14168",
    ),
    DataSet(
        "gsm8k_token_variants.csv",
        "GSM8K test set: lengths under other conventions",
        "openai/grade-school-math",
        "MIT",
        1319,
        None,
        "5fc0e20dd74004c3dc82a73c7f1129ca199266848c824b967d9c5d4a99ad31fa",
        "Cobbe et al., Training Verifiers to Solve Math Word Problems, arXiv 2110.14168",
    ),
    DataSet(
        "azure_conv_2023.csv",
        "Azure conversation trace 2023",
        "Azure/AzurePublicDataset",
        "CC-BY-4.0",
        19366,
        "azure",
        "be1f42e58b67bd9dd19681e7cba0c1d79ef83bd99669322ec5b439acb7360035",
        "Patel et al., Splitwise, ISCA 2024",
    ),
    DataSet(
        "azure_code_2023.csv",
        "Azure code trace 2023",
        "Azure/AzurePublicDataset",
        "CC-BY-4.0",
        8819,
        "azure",
        "f52ab08fbecc4c765b9ef424bb4d80b041ad8b789b6f96b9c2979ac72037e9ff",
        "Patel et al., Splitwise, ISCA 2024",
    ),
    DataSet(
        "burstgpt_head400.csv",
        "BurstGPT, the first 400 rows (by way of GitM-Labs/runtime)",
        "HPMLL/BurstGPT",
        "CC-BY-4.0",
        400,
        "burstgpt",
        "7865fda5dac50938a84dfccb06c405e2f5202969ecfbd671c8399de00f4335f0",
        "Wang et al., BurstGPT, KDD 2025",
    ),
    DataSet(
        "mooncake_conversation.jsonl",
        "Mooncake conversation trace with cache blocks",
        "kvcache-ai/Mooncake",
        "Apache-2.0",
        12031,
        "mooncake",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        "Qin et al., Mooncake, FAST 2025",
    ),
    DataSet(
        "servegen_m_small_rates.csv",
        "ServeGen m_small: request rates by client",
        "alibaba/ServeGen",
        "Apache-2.0",
        40095,
        None,
        "d2b4c523000aed6a436faabc0d2bcbbbc27ae8c3f8082df354ee96c98979aace",
        "Xiang et al., ServeGen, arXiv 2505.09999",
    ),
    DataSet(
        "servegen_m_small_lengths.csv",
        "ServeGen m_small: length quantiles by client",
        "alibaba/ServeGen",
        "Apache-2.0",
        2250,
        None,
        "07d3f8d27f4b18698fc95b61be3f90e49c91d622247739a835f9313d49aec4e2",
        "Xiang et al., ServeGen, arXiv 2505.09999",
    ),
    DataSet(
        "servegen_deepseek_r1_rates.csv",
        "ServeGen deepseek_r1: request rates by client",
        "alibaba/ServeGen",
        "Apache-2.0",
        3111,
        None,
        "69c6b2e4381c0c801a0fd6c9ca9ae4bbc8d4d02836b32b618d8150a3201cfa9b",
        "Xiang et al., ServeGen, arXiv 2505.09999",
    ),
    DataSet(
        "servegen_deepseek_r1_lengths.csv",
        "ServeGen deepseek_r1: length quantiles by client",
        "alibaba/ServeGen",
        "Apache-2.0",
        552,
        None,
        "64efcf025d7f488bd986f9ebdc89d5831257133da37cee020fff90474a3a5256",
        "Xiang et al., ServeGen, arXiv 2505.09999",
    ),
    DataSet(
        "sharegpt_10k_llama2_tokens.csv",
        "ShareGPT conversations: length pairs",
        "AKafakA/vidur_opt_scheduler",
        "MIT",
        10000,
        "pairs",
        "ed46060f283d956855eea0a886e5637a9398e8820fa8520e76cd4fe63fd39bb3",
        "",
    ),
    DataSet(
        "arxiv_summarization_llama2_tokens.csv",
        "arXiv summarisation: length pairs",
        "microsoft/vidur",
        "MIT",
        28257,
        "pairs",
        "39fb7aae9d69556c79383d741e0568dae4500fa1485d28aa6f541e9d20e801c5",
        "",
    ),
    DataSet(
        "output_length_predictions.csv",
        "true output lengths and predicted buckets",
        "James-QiuHaoran/LLM-serving-with-proxy-models",
        "Apache-2.0",
        60000,
        None,
        "61801ce7e7289cfcb4687e0f117e35707673bee18b28f992086ed46932bb3cb3",
        "Qiu et al., arXiv 2404.08509",
    ),
    DataSet(
        "oasst_trees_llama_tokens.csv",
        "OpenAssistant conversation trees",
        "LAION-AI/Open-Assistant",
        "Apache-2.0",
        1167,
        None,
        "1d131f45f75dea7d036d706c411e77a5ea88d6dff21c096b9936e3ff915558fd",
        "",
    ),
    DataSet(
        "vllm_measured_rtx4090_llama31_8b.csv",
        "measured vLLM run, RTX 4090, Llama-3.1-8B",
        "casys-kaist/LLMServingSim",
        "MIT",
        300,
        "measured",
        "402b0df67b031bb873a7ba3623015e307b82bdc737ab0821735f5e9d4b2a7a62",
        "",
    ),
    DataSet(
        "vllm_measured_rtx4090_llama31_8b_timeline.csv",
        "its queue and cache use by second",
        "casys-kaist/LLMServingSim",
        "MIT",
        184,
        None,
        "fac234b0ef636a29bd442e32de2187af69fe77cc673ee1e9cf505e7977005164",
        "",
    ),
    DataSet(
        "vllm_measured_rtxpro6000_qwen3_32b.csv",
        "measured vLLM run, RTX PRO 6000, Qwen3-32B",
        "casys-kaist/LLMServingSim",
        "MIT",
        300,
        "measured",
        "0cd4a1a2404dba36a6858368ac5c80384a2fc2aa44bd329728d859dc7bfb55d7",
        "",
    ),
    DataSet(
        "vllm_measured_rtxpro6000_qwen3_32b_timeline.csv",
        "its queue and cache use by second",
        "casys-kaist/LLMServingSim",
        "MIT",
        160,
        None,
        "6d8afb5555d36a8dca00d1951e03a510c8d92ee60e30c1066a532f73515c1687",
        "",
    ),
    DataSet(
        "kernel_profile_rtx4090_llama31_8b_attention.csv",
        "attention kernel times, RTX 4090",
        "casys-kaist/LLMServingSim",
        "MIT",
        8643,
        None,
        "60577f7d8500ff3fee8dd775a1bc78eb114213b0eb7275093dd0475d020a6e52",
        "",
    ),
    DataSet(
        "kernel_profile_rtx4090_llama31_8b_dense.csv",
        "dense layer times, RTX 4090",
        "casys-kaist/LLMServingSim",
        "MIT",
        1368,
        None,
        "0fa787d586a8d465313edec7ce92231264edd170aaa69fedcb362bd9d9163fdd",
        "",
    ),
    DataSet(
        "vidur_linear_ops_a100_llama2_7b.csv",
        "layer times without attention, A100, Llama-2-7B",
        "microsoft/vidur",
        "MIT",
        1044,
        None,
        "7b779dcb7ee84e4a303255e8bff942dd89b5da020e07665291fc1d82e8990a69",
        "",
    ),
    DataSet(
        "vidur_linear_ops_a100_llama2_70b.csv",
        "layer times without attention, A100, Llama-2-70B",
        "microsoft/vidur",
        "MIT",
        1044,
        None,
        "d51d4f9efa5970e0c396478dc06662b8068eca0e5ab8c0a89adb87485d5f3673",
        "",
    ),
)

DATA_SETS = {entry.file.rpartition(".")[0]: entry for entry in _ENTRIES}
"""The data sets by name (the file's name without its suffix)."""
