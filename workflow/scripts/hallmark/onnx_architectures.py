"""Architectures that the ONNX tools can carry. Data alone; it looks nothing up.

Exported ones: optimum-onnx 0.1.0's registrations under transformers 4.57.6, as `architectures` of config.json names
them; encoders are those that transformers also knows with a masked-language-model head and that take nothing but
tokens. Built ones: what onnxruntime-genai 0.18.0's model builder dispatches on, less what is for CUDA or for more than
text. A test compares both tables with the toolchains.
"""

EXPORTED_LANGUAGE_MODELS = frozenset(
    [
        "ArceeForCausalLM",
        "BartForCausalLM",
        "BigBirdPegasusForCausalLM",
        "BlenderbotForCausalLM",
        "BlenderbotSmallForCausalLM",
        "BloomForCausalLM",
        "CodeGenForCausalLM",
        "CohereForCausalLM",
        "DeepseekV3ForCausalLM",
        "FalconForCausalLM",
        "GPT2LMHeadModel",
        "GPTBigCodeForCausalLM",
        "GPTJForCausalLM",
        "GPTNeoForCausalLM",
        "GPTNeoXForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GemmaForCausalLM",
        "GlmForCausalLM",
        "GptOssForCausalLM",
        "GraniteForCausalLM",
        "HeliumForCausalLM",
        "LlamaForCausalLM",
        "MBartForCausalLM",
        "MarianForCausalLM",
        "MistralForCausalLM",
        "MptForCausalLM",
        "NemotronForCausalLM",
        "OPTForCausalLM",
        "Olmo2ForCausalLM",
        "OlmoForCausalLM",
        "PegasusForCausalLM",
        "Phi3ForCausalLM",
        "PhiForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "SmolLM3ForCausalLM",
        "StableLmForCausalLM",
    ]
)

BUILT_LANGUAGE_MODELS = frozenset(
    [
        "Ernie4_5ForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GemmaForCausalLM",
        "GptOssForCausalLM",
        "GraniteForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "InternLM2ForCausalLM",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "NemotronForCausalLM",
        "OlmoForCausalLM",
        "Phi3ForCausalLM",
        "Phi3SmallForCausalLM",
        "PhiForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "SmolLM3ForCausalLM",
    ]
)

ENCODERS = frozenset(
    [
        "AlbertForMaskedLM",
        "AlbertModel",
        "BertForMaskedLM",
        "BertModel",
        "BigBirdForMaskedLM",
        "BigBirdModel",
        "CamembertForMaskedLM",
        "CamembertModel",
        "ConvBertForMaskedLM",
        "ConvBertModel",
        "Data2VecTextForMaskedLM",
        "Data2VecTextModel",
        "DebertaForMaskedLM",
        "DebertaModel",
        "DebertaV2ForMaskedLM",
        "DebertaV2Model",
        "DistilBertForMaskedLM",
        "DistilBertModel",
        "ElectraForMaskedLM",
        "ElectraModel",
        "EsmForMaskedLM",
        "EsmModel",
        "IBertForMaskedLM",
        "IBertModel",
        "LongformerForMaskedLM",
        "LongformerModel",
        "MPNetForMaskedLM",
        "MPNetModel",
        "MegatronBertForMaskedLM",
        "MegatronBertModel",
        "MobileBertForMaskedLM",
        "MobileBertModel",
        "ModernBertForMaskedLM",
        "ModernBertModel",
        "NystromformerForMaskedLM",
        "NystromformerModel",
        "RemBertForMaskedLM",
        "RemBertModel",
        "RoFormerForMaskedLM",
        "RoFormerModel",
        "RobertaForMaskedLM",
        "RobertaModel",
        "SqueezeBertForMaskedLM",
        "SqueezeBertModel",
        "XLMRobertaForMaskedLM",
        "XLMRobertaModel",
    ]
)

# Rotary scaling. A traced graph keeps frequencies that follow from the config alone, and freezes those that a longer
# input changes (dynamic, longrope). The builder: `make_rope_init` of its classes. The general one raises for what it does
# not know; Llama's, which two others take over, knows llama3 and leaves out anything else without a word: with yarn, with
# dynamic and with neither it writes the same bytes.
EXPORTED_ROPE: dict[str, frozenset[str]] = {"linear": frozenset(), "yarn": frozenset(), "llama3": frozenset()}
_BUILT_LIKE_LLAMA = frozenset({"LlamaForCausalLM", "NemotronForCausalLM", "SmolLM3ForCausalLM"})
_BUILT_AS_USUAL = BUILT_LANGUAGE_MODELS - _BUILT_LIKE_LLAMA - {"HunYuanDenseV1ForCausalLM"}
BUILT_ROPE = {
    "linear": _BUILT_AS_USUAL,
    "yarn": _BUILT_AS_USUAL,
    "llama3": _BUILT_LIKE_LLAMA,
    "longrope": frozenset({"Phi3ForCausalLM"}),
    "dynamic": frozenset({"HunYuanDenseV1ForCausalLM"}),
}
