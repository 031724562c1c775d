//! What each `model_type` means and what its config may leave out.
//!
//! Every row names the configuration class of Hugging Face transformers (5.24) that it follows;
//! its numbers are that class's defaults. A setting on which engines disagree is in no row, and
//! is refused where a config states it.

use super::fields::{FULL_ATTENTION_INTERVAL, Field, SLIDING_WINDOW_PATTERN};
use crate::{DType, Recurrence};

/// The rule of one `model_type`.
pub(super) struct Family {
    pub(super) model_type: &'static str,
    /// `num_hidden_layers`; `None` where the list of layers gives it.
    pub(super) layers: Option<u32>,
    /// `torch_dtype`; `None` where a config must state it.
    pub(super) dtype: Option<DType>,
    pub(super) keeps: Keeps,
    pub(super) other: Other,
    pub(super) pick: Pick,
}

/// What an attention layer keeps for each token.
#[derive(Clone, Copy)]
pub(super) enum Keeps {
    /// A key and a value for each head.
    Heads {
        hidden_size: u32,
        num_attention_heads: u32,
        /// `None`: as many as attention heads.
        num_key_value_heads: Option<u32>,
        /// `None`: `hidden_size / num_attention_heads`.
        head_dim: Option<u32>,
    },
    /// One latent for all heads (MLA).
    Latent { kv_lora_rank: u32, qk_rope_head_dim: u32 },
}

/// What the layers are that do not attend to everything.
#[derive(Clone, Copy)]
pub(super) enum Other {
    /// There are none.
    None,
    /// They see `sliding_window` tokens; all layers are full where that is null.
    Window {
        sliding_window: Option<u32>,
        /// False wins over `sliding_window`.
        use_sliding_window: bool,
    },
    /// They see chunks of `attention_chunk_size` tokens; all layers are full where that is null.
    Chunk { attention_chunk_size: u32 },
    /// They keep a state.
    Recurrent(State),
}

/// What a recurrent layer keeps, in the words of its configuration class.
#[derive(Clone, Copy)]
pub(super) enum State {
    Mamba1(Mamba1),
    Mamba2(Mamba2),
    GatedDeltaNet(DeltaNet),
    ShortConv { conv_l_cache: u32 },
}

#[derive(Clone, Copy)]
pub(super) struct Mamba1 {
    pub(super) mamba_d_state: u32,
    pub(super) mamba_d_conv: u32,
    /// Channels for each of `hidden_size`.
    pub(super) mamba_expand: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Mamba2 {
    pub(super) mamba_num_heads: u32,
    pub(super) mamba_head_dim: u32,
    pub(super) n_groups: u32,
    pub(super) ssm_state_size: u32,
    pub(super) conv_kernel: u32,
}

#[derive(Clone, Copy)]
pub(super) struct DeltaNet {
    pub(super) linear_num_key_heads: u32,
    pub(super) linear_num_value_heads: u32,
    pub(super) linear_key_head_dim: u32,
    pub(super) linear_value_head_dim: u32,
    pub(super) linear_conv_kernel_dim: u32,
}

/// Which layers are full attention and which are of the other kind.
#[derive(Clone, Copy)]
pub(super) enum Pick {
    /// All are of the other kind, or full where there is no other.
    Alike,
    /// The first `max_window_layers` are full.
    FullUntil { max_window_layers: u32 },
    /// The last of each `period` is full; `field` may state the period.
    LastOf { period: u32, field: Option<&'static Field> },
    /// `no_rope_layers` is 1 for a layer of the other kind and 0 for a full one; empty or left
    /// out, the last of each `no_rope_layer_interval` is full.
    NoRope { no_rope_layer_interval: u32 },
    /// Layer i is full where `i % attn_layer_period == attn_layer_offset`.
    OneOf { attn_layer_period: u32, attn_layer_offset: u32 },
    /// `full_attn_idxs` lists the full layers; left out, all are.
    Indices,
    /// `hybrid_override_pattern` has a letter for each layer: `*` is attention, `M` the other
    /// kind, `-` (MLP) and `E` (experts) keep nothing.
    Letters,
}

impl Family {
    pub(super) fn of(model_type: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.model_type == model_type)
    }

    /// Every `model_type` that has a rule, for a message.
    pub(super) fn known() -> String {
        FAMILIES.iter().map(|family| family.model_type).collect::<Vec<_>>().join(", ")
    }
}

impl Keeps {
    /// `hidden_size`, where the family's row has it.
    pub(super) fn hidden_size(self) -> Option<u32> {
        match self {
            Self::Heads { hidden_size, .. } => Some(hidden_size),
            Self::Latent { .. } => None,
        }
    }
}

impl State {
    pub(super) fn recurrence(self) -> Recurrence {
        match self {
            Self::Mamba1(_) => Recurrence::Mamba1,
            Self::Mamba2(_) => Recurrence::Mamba2,
            Self::GatedDeltaNet(_) => Recurrence::GatedDeltaNet,
            Self::ShortConv { .. } => Recurrence::ShortConv,
        }
    }

    /// What a list of layer types calls such a layer.
    pub(super) fn layer_types(self) -> &'static [&'static str] {
        match self {
            Self::ShortConv { .. } => &["conv"],
            _ => &["linear_attention", "mamba"],
        }
    }
}

/// A window only where the config states one.
const WINDOW_IF_STATED: Other = Other::Window { sliding_window: None, use_sliding_window: true };
/// Qwen's windows are off unless the config switches them on.
const WINDOW_IF_USED: Other =
    Other::Window { sliding_window: Some(4096), use_sliding_window: false };

/// The delta net of every Qwen class that has one.
const DELTA_NET: Other = Other::Recurrent(State::GatedDeltaNet(DeltaNet {
    linear_num_key_heads: 16,
    linear_num_value_heads: 32,
    linear_key_head_dim: 128,
    linear_value_head_dim: 128,
    linear_conv_kernel_dim: 4,
}));
const EACH_FOURTH: Pick = Pick::LastOf { period: 4, field: Some(&FULL_ATTENTION_INTERVAL) };

const fn window(sliding_window: u32) -> Other {
    Other::Window { sliding_window: Some(sliding_window), use_sliding_window: true }
}

const fn heads(
    hidden_size: u32,
    num_attention_heads: u32,
    num_key_value_heads: Option<u32>,
    head_dim: Option<u32>,
) -> Keeps {
    Keeps::Heads { hidden_size, num_attention_heads, num_key_value_heads, head_dim }
}

const fn family(model_type: &'static str, layers: u32, keeps: Keeps) -> Family {
    Family {
        model_type,
        layers: Some(layers),
        dtype: None,
        keeps,
        other: Other::None,
        pick: Pick::Alike,
    }
}

/// The table. A row is model_type, num_hidden_layers, and what a layer keeps: hidden_size,
/// num_attention_heads, num_key_value_heads, head_dim.
static FAMILIES: [Family; 20] = [
    // LlamaConfig
    family("llama", 32, heads(4096, 32, None, None)),
    // MistralConfig
    Family { other: window(4096), ..family("mistral", 32, heads(4096, 32, Some(8), None)) },
    // MixtralConfig
    Family { other: WINDOW_IF_STATED, ..family("mixtral", 32, heads(4096, 32, Some(8), None)) },
    // Phi3Config
    Family { other: WINDOW_IF_STATED, ..family("phi3", 32, heads(3072, 32, None, None)) },
    // Qwen2Config
    Family {
        other: WINDOW_IF_USED,
        pick: Pick::FullUntil { max_window_layers: 28 },
        ..family("qwen2", 32, heads(4096, 32, Some(32), None))
    },
    // Qwen3Config
    Family {
        other: WINDOW_IF_USED,
        pick: Pick::FullUntil { max_window_layers: 28 },
        ..family("qwen3", 32, heads(4096, 32, Some(32), Some(128)))
    },
    // Qwen2MoeConfig. Its windows mean one thing in version 4 and another in 5: refused.
    family("qwen2_moe", 24, heads(2048, 16, Some(16), None)),
    // Qwen3MoeConfig. No published model uses its windows: refused rather than guessed.
    family("qwen3_moe", 24, heads(2048, 32, Some(4), None)),
    // Gemma2Config
    Family {
        other: window(4096),
        pick: Pick::LastOf { period: 2, field: None },
        ..family("gemma2", 26, heads(2304, 8, Some(4), Some(256)))
    },
    // Gemma3TextConfig; `gemma3` is the multimodal config around it.
    Family {
        other: window(4096),
        pick: Pick::LastOf { period: 6, field: Some(&SLIDING_WINDOW_PATTERN) },
        ..family("gemma3_text", 26, heads(2304, 8, Some(4), Some(256)))
    },
    // GptOssConfig. The published configs state no dtype; the weights but the experts are bf16.
    Family {
        dtype: Some(DType::Bf16),
        other: window(128),
        pick: Pick::LastOf { period: 2, field: None },
        ..family("gpt_oss", 36, heads(2880, 64, Some(8), Some(64)))
    },
    // Llama4TextConfig; `llama4` is the multimodal config around it.
    Family {
        other: Other::Chunk { attention_chunk_size: 8192 },
        pick: Pick::NoRope { no_rope_layer_interval: 4 },
        ..family("llama4_text", 48, heads(5120, 40, Some(8), Some(128)))
    },
    // DeepseekV2Config
    family("deepseek_v2", 32, Keeps::Latent { kv_lora_rank: 512, qk_rope_head_dim: 64 }),
    // DeepseekV3Config
    family("deepseek_v3", 61, Keeps::Latent { kv_lora_rank: 512, qk_rope_head_dim: 64 }),
    // Qwen3NextConfig
    Family {
        other: DELTA_NET,
        pick: EACH_FOURTH,
        ..family("qwen3_next", 48, heads(2048, 16, Some(2), Some(256)))
    },
    // Qwen3_5TextConfig; `qwen3_5` is the multimodal config around it.
    Family {
        other: DELTA_NET,
        pick: EACH_FOURTH,
        ..family("qwen3_5_text", 32, heads(4096, 16, Some(4), Some(256)))
    },
    // Qwen3_5MoeTextConfig; `qwen3_5_moe` is the multimodal config around it.
    Family {
        other: DELTA_NET,
        pick: EACH_FOURTH,
        ..family("qwen3_5_moe_text", 40, heads(2048, 16, Some(2), Some(256)))
    },
    // JambaConfig
    Family {
        other: Other::Recurrent(State::Mamba1(Mamba1 {
            mamba_d_state: 16,
            mamba_d_conv: 4,
            mamba_expand: 2,
        })),
        pick: Pick::OneOf { attn_layer_period: 8, attn_layer_offset: 4 },
        ..family("jamba", 32, heads(4096, 32, Some(8), None))
    },
    // NemotronHConfig. The list of layers gives num_hidden_layers, and has no default here: a
    // config without one is cut short.
    Family {
        layers: None,
        other: Other::Recurrent(State::Mamba2(Mamba2 {
            mamba_num_heads: 128,
            mamba_head_dim: 64,
            n_groups: 8,
            ssm_state_size: 128,
            conv_kernel: 4,
        })),
        pick: Pick::Letters,
        ..family("nemotron_h", 52, heads(4096, 32, Some(8), Some(128)))
    },
    // Lfm2Config
    Family {
        other: Other::Recurrent(State::ShortConv { conv_l_cache: 3 }),
        pick: Pick::Indices,
        ..family("lfm2", 32, heads(2560, 32, Some(8), None))
    },
];
