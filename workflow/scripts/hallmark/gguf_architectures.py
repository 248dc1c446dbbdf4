"""The architectures that llama.cpp's converter knows, by task: names as in `architectures` of config.json. Data only.

Read from `TEXT_MODEL_MAP` in llama.cpp's `conversion/__init__.py` at the version that the toolchain pins. Language
models are its names that end in ForCausalLM or LMHeadModel, less drafts for speculative decoding and models that also
see or hear. Encoders are those it writes a pooling for, less classifiers.
"""

_LANGUAGE_MODELS = """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM ArcticForCausalLM BaiChuanForCausalLM BaichuanForCausalLM
    BailingMoeForCausalLM BailingMoeV2ForCausalLM BailingMoeV3ForCausalLM BambaForCausalLM BitNetForCausalLM
    BitnetForCausalLM BloomForCausalLM CodeShellForCausalLM Cohere2ForCausalLM Cohere2MoeForCausalLM CohereForCausalLM
    DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM
    DeepseekV3ForCausalLM DeepseekV4ForCausalLM Dots1ForCausalLM Ernie4_5ForCausalLM Ernie4_5_ForCausalLM
    Ernie4_5_MoeForCausalLM Exaone4ForCausalLM ExaoneForCausalLM ExaoneMoEForCausalLM ExaoneMoeForCausalLM
    FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM
    GPTNeoXForCausalLM GPTRefactForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM Gemma3nForCausalLM Gemma4ForCausalLM
    GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM GlmForCausalLM GlmMoeDsaForCausalLM
    GptOssForCausalLM GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM
    GraniteMoeSharedForCausalLM GraniteSWAForCausalLM GraniteSwitchForCausalLM Grok1ForCausalLM GrokForCausalLM
    GroveMoeForCausalLM HYV3ForCausalLM HYV4ForCausalLM HrmTextForCausalLM HunYuanDenseV1ForCausalLM
    HunYuanMoEV1ForCausalLM IQuestCoderForCausalLM InternLM2ForCausalLM InternLM3ForCausalLM JAISLMHeadModel
    Jais2ForCausalLM JambaForCausalLM KORMoForCausalLM KimiLinearForCausalLM LFM2ForCausalLM LLaMAForCausalLM
    LagunaForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM Llama4ForCausalLM LlamaForCausalLM MPTForCausalLM
    MaincoderForCausalLM Mamba2ForCausalLM MambaForCausalLM MambaLMHeadModel MapleForCausalLM MellumForCausalLM
    MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniMaxM1ForCausalLM
    MiniMaxM2ForCausalLM MiniMaxText01ForCausalLM Ministral3ForCausalLM MistralForCausalLM MixtralForCausalLM
    NanbeigeForCausalLM NemotronForCausalLM NemotronHForCausalLM NemotronHPuzzleForCausalLM OLMoForCausalLM
    Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoeForCausalLM OpenELMForCausalLM OrionForCausalLM
    PLMForCausalLM PLaMo2ForCausalLM PLaMo3ForCausalLM PanguEmbeddedForCausalLM Phi3ForCausalLM PhiForCausalLM
    PhiMoEForCausalLM Plamo2ForCausalLM Plamo3ForCausalLM PlamoForCausalLM QWenLMHeadModel Qwen2ForCausalLM
    Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3_5ForCausalLM
    Qwen3_5MoeForCausalLM Qwen4ExpForCausalLM RWForCausalLM RWKV6Qwen2ForCausalLM RWKV7ForCausalLM RuGPT3XLForCausalLM
    Rwkv6ForCausalLM Rwkv7ForCausalLM RwkvHybridForCausalLM SarvamMoEForCausalLM SeedOssForCausalLM
    SmallThinkerForCausalLM SmolLM3ForCausalLM SolarOpenForCausalLM Spark2_5ForCausalLM StableLMEpochForCausalLM
    StableLmForCausalLM Starcoder2ForCausalLM Step3p5ForCausalLM T5WithLMHeadModel TalkieForCausalLM
    VLlama3ForCausalLM XverseForCausalLM YoutuForCausalLM
"""
_ENCODERS = """
    BertForMaskedLM BertModel CamembertModel DistilBertForMaskedLM DistilBertModel EuroBertModel Gemma3TextModel
    JinaBertForMaskedLM JinaBertModel Lfm2BidirectionalModel Lfm2Model ModernBertForMaskedLM ModernBertModel NeoBERT
    NomicBertModel Qwen2ForCausalLM Qwen2Model Qwen3ForCausalLM Qwen3Model RobertaModel XLMRobertaModel
"""

LANGUAGE_MODELS = frozenset(_LANGUAGE_MODELS.split())
ENCODERS = frozenset(_ENCODERS.split())

# Rotary scaling, read from `set_gguf_parameters` and `generate_extra_tensors` of the converter's classes at the same
# version. These write none at all: what the config says is dropped without a word.
_UNSCALED = frozenset(
    [
        "BloomForCausalLM",
        "CodeShellForCausalLM",
        "Cohere2ForCausalLM",
        "Cohere2MoeForCausalLM",
        "CohereForCausalLM",
        "DbrxForCausalLM",
        "DeepseekForCausalLM",
        "EuroBertModel",
        "ExaoneMoEForCausalLM",
        "ExaoneMoeForCausalLM",
        "FalconForCausalLM",
        "FalconH1ForCausalLM",
        "FalconMambaForCausalLM",
        "GPT2LMHeadModel",
        "GPTBigCodeForCausalLM",
        "GPTNeoXForCausalLM",
        "GPTRefactForCausalLM",
        "Gemma2ForCausalLM",
        "GemmaForCausalLM",
        "GlmForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "JAISLMHeadModel",
        "JambaForCausalLM",
        "MPTForCausalLM",
        "Mamba2ForCausalLM",
        "MambaForCausalLM",
        "MambaLMHeadModel",
        "MiniCPM3ForCausalLM",
        "ModernBertForMaskedLM",
        "ModernBertModel",
        "NemotronForCausalLM",
        "NeoBERT",
        "OpenELMForCausalLM",
        "OrionForCausalLM",
        "PLaMo2ForCausalLM",
        "Phi3ForCausalLM",
        "PhiForCausalLM",
        "PhiMoEForCausalLM",
        "Plamo2ForCausalLM",
        "PlamoForCausalLM",
        "RWForCausalLM",
        "RWKV6Qwen2ForCausalLM",
        "RWKV7ForCausalLM",
        "Rwkv6ForCausalLM",
        "Rwkv7ForCausalLM",
        "RwkvHybridForCausalLM",
        "StableLMEpochForCausalLM",
        "StableLmForCausalLM",
        "T5WithLMHeadModel",
    ]
)
_LLAMA3 = """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM BambaForCausalLM DeciLMForCausalLM Exaone4ForCausalLM
    ExaoneForCausalLM ExaoneMoEForCausalLM ExaoneMoeForCausalLM GraniteForCausalLM GraniteMoeForCausalLM
    GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM GraniteSWAForCausalLM
    GraniteSwitchForCausalLM IQuestCoderForCausalLM LLaMAForCausalLM Llama4ForCausalLM LlamaForCausalLM
    MistralForCausalLM MixtralForCausalLM NanbeigeForCausalLM NemotronHForCausalLM NemotronHPuzzleForCausalLM
    SmolLM3ForCausalLM Step3p5ForCausalLM VLlama3ForCausalLM
"""
_SCALED = (LANGUAGE_MODELS | ENCODERS) - _UNSCALED
ROPE = {
    "linear": _SCALED | {"NemotronForCausalLM"},
    "yarn": _SCALED,
    "llama3": frozenset(_LLAMA3.split()),
    "longrope": frozenset({"MiniCPM3ForCausalLM", "MiniCPMForCausalLM", "Phi3ForCausalLM", "PhiMoEForCausalLM"}),
    "dynamic": frozenset({"HunYuanDenseV1ForCausalLM", "HunYuanMoEV1ForCausalLM"}),
    "proportional": frozenset({"Gemma4ForCausalLM"}),
}
