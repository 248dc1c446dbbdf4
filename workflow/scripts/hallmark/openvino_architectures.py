"""Architectures that optimum-intel 2.2.0 exports with transformers 5.5.4, by task. Data alone; it looks nothing up.

From the exporter's registrations, less those that declare versions of transformers without 5.5.4; a test compares the
table with the toolchain. Encoders are those that transformers also knows with a masked-language-model head. Gemma 3 is
beyond the versions that the exporter declares, and exact all the same (see `openvino_export.BEYOND_ITS_LIMIT`).
"""

BEYOND_ITS_LIMIT = frozenset({"Gemma3ForCausalLM"})

_LANGUAGE_MODELS = """
    AfmoeForCausalLM ArceeForCausalLM BartForCausalLM BigBirdPegasusForCausalLM BioGptForCausalLM
    BlenderbotForCausalLM BlenderbotSmallForCausalLM BloomForCausalLM CodeGenForCausalLM Cohere2ForCausalLM
    CohereForCausalLM FalconForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM GPTNeoForCausalLM
    GPTNeoXForCausalLM GPTNeoXJapaneseForCausalLM Glm4ForCausalLM GptOssForCausalLM GraniteForCausalLM
    GraniteMoeForCausalLM GraniteMoeHybridForCausalLM HunYuanDenseV1ForCausalLM LlamaForCausalLM MBartForCausalLM
    MistralForCausalLM MixtralForCausalLM MptForCausalLM OPTForCausalLM Olmo2ForCausalLM OlmoForCausalLM
    PegasusForCausalLM PersimmonForCausalLM Phi3ForCausalLM PhiForCausalLM PhimoeForCausalLM Qwen2ForCausalLM
    Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM SmolLM3ForCausalLM StableLmForCausalLM
    Starcoder2ForCausalLM XGLMForCausalLM
"""

_ENCODERS = """
    AlbertForMaskedLM AlbertModel BertForMaskedLM BertModel CamembertForMaskedLM CamembertModel ConvBertForMaskedLM
    ConvBertModel DebertaForMaskedLM DebertaModel DebertaV2ForMaskedLM DebertaV2Model DistilBertForMaskedLM
    DistilBertModel ElectraForMaskedLM ElectraModel EsmForMaskedLM EsmModel IBertForMaskedLM IBertModel
    MPNetForMaskedLM MPNetModel MobileBertForMaskedLM MobileBertModel RemBertForMaskedLM RemBertModel
    RoFormerForMaskedLM RoFormerModel RobertaForMaskedLM RobertaModel SqueezeBertForMaskedLM SqueezeBertModel
    XLMRobertaForMaskedLM XLMRobertaModel
"""

LANGUAGE_MODELS = BEYOND_ITS_LIMIT.union(_LANGUAGE_MODELS.split())
ENCODERS = frozenset(_ENCODERS.split())

# Rotary scaling. The exporter traces, so it keeps frequencies that follow from the config alone; it has a patch of its
# own for longrope, and freezes `dynamic` at the length that it traces with: a tiny Llama of 512 positions differs from
# PyTorch by 0.0003 up to there and by 0.04 (of 0.94) at 800 tokens, with yarn by 0.0003 at both.
ROPE: dict[str, frozenset[str]] = {
    name: frozenset() for name in ("linear", "yarn", "llama3", "longrope", "proportional")
}
