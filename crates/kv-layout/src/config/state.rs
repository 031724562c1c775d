//! What a recurrent layer keeps: the parts of its state, over the whole model.
//!
//! The shapes are those of vLLM's `MambaStateShapeCalculator` on one rank. A causal convolution
//! over k columns keeps the k − 1 before the next token; a unit is what tensor parallelism shares
//! out, so each projection that is sharded by itself is a part of its own.
//!
//! Elements are of the model's dtype, which is what vLLM's `auto` means for both its
//! `mamba_cache_dtype` and its `mamba_ssm_cache_dtype`. Where the config states the dtype of the
//! temporal state, `auto` follows the config, and so do we. One case is left to the config: from
//! a Nemotron-H config that states none, vLLM's `NemotronHForCausalLMConfig` makes float32. Who
//! plans for such an engine states `mamba_ssm_cache_dtype`.

use super::defaults::{DeltaNet, Family, Mamba1, Mamba2, Other, State};
use super::error::Problem;
use super::fields::{
    CONV_DIM, CONV_KERNEL, CONV_L_CACHE, Fields, HIDDEN_SIZE, LINEAR_CONV_KERNEL_DIM,
    LINEAR_KEY_HEAD_DIM, LINEAR_NUM_KEY_HEADS, LINEAR_NUM_VALUE_HEADS, LINEAR_VALUE_HEAD_DIM,
    MAMBA_D_CONV, MAMBA_D_STATE, MAMBA_EXPAND, MAMBA_HEAD_DIM, MAMBA_NUM_HEADS, N_GROUPS,
    SSM_STATE_SIZE,
};
use super::stated_dtype;
use crate::{DType, LayerPart, Role};

/// The parts of every recurrent layer of the model; none where it has no such layer.
pub(super) fn parts(
    text: &Fields<'_>,
    family: &Family,
    dtype: DType,
) -> Result<Vec<LayerPart>, Problem> {
    let Other::Recurrent(state) = family.other else { return Ok(Vec::new()) };
    let hidden_size = family.keeps.hidden_size();
    match state {
        State::Mamba1(defaults) => mamba1(text, defaults, hidden_size, dtype),
        State::Mamba2(defaults) => mamba2(text, defaults, dtype),
        State::GatedDeltaNet(defaults) => delta_net(text, defaults, dtype),
        State::ShortConv { conv_l_cache } => short_conv(text, conv_l_cache, hidden_size, dtype),
    }
}

fn mamba1(
    text: &Fields<'_>,
    defaults: Mamba1,
    hidden_size: Option<u32>,
    dtype: DType,
) -> Result<Vec<LayerPart>, Problem> {
    let state = text.number(&MAMBA_D_STATE, Some(defaults.mamba_d_state))?;
    let kernel = text.number(&MAMBA_D_CONV, Some(defaults.mamba_d_conv))?;
    let expand = text.number(&MAMBA_EXPAND, Some(defaults.mamba_expand))?;
    let inner = expand * text.number(&HIDDEN_SIZE, hidden_size)?;
    Ok(vec![conv(Role::ConvInput, inner, 1, kernel, dtype), temporal(inner, state, dtype)])
}

fn mamba2(text: &Fields<'_>, defaults: Mamba2, dtype: DType) -> Result<Vec<LayerPart>, Problem> {
    let heads = text.number(&MAMBA_NUM_HEADS, Some(defaults.mamba_num_heads))?;
    let head_dim = text.number(&MAMBA_HEAD_DIM, Some(defaults.mamba_head_dim))?;
    let groups = text.number(&N_GROUPS, Some(defaults.n_groups))?;
    let state = text.number(&SSM_STATE_SIZE, Some(defaults.ssm_state_size))?;
    let kernel = text.number(&CONV_KERNEL, Some(defaults.conv_kernel))?;
    text.divide((&MAMBA_NUM_HEADS, heads), (&N_GROUPS, groups))?;
    let temporal_dtype = stated_dtype(text, "mamba_ssm_cache_dtype")?.unwrap_or(dtype);
    Ok(vec![
        conv(Role::ConvInput, heads, head_dim, kernel, dtype),
        conv(Role::ConvB, groups, state, kernel, dtype),
        conv(Role::ConvC, groups, state, kernel, dtype),
        temporal(heads, head_dim * state, temporal_dtype),
    ])
}

fn delta_net(
    text: &Fields<'_>,
    defaults: DeltaNet,
    dtype: DType,
) -> Result<Vec<LayerPart>, Problem> {
    let keys = text.number(&LINEAR_NUM_KEY_HEADS, Some(defaults.linear_num_key_heads))?;
    let values = text.number(&LINEAR_NUM_VALUE_HEADS, Some(defaults.linear_num_value_heads))?;
    let key_dim = text.number(&LINEAR_KEY_HEAD_DIM, Some(defaults.linear_key_head_dim))?;
    let value_dim = text.number(&LINEAR_VALUE_HEAD_DIM, Some(defaults.linear_value_head_dim))?;
    let kernel = text.number(&LINEAR_CONV_KERNEL_DIM, Some(defaults.linear_conv_kernel_dim))?;
    text.divide((&LINEAR_NUM_VALUE_HEADS, values), (&LINEAR_NUM_KEY_HEADS, keys))?;
    let temporal_dtype = stated_dtype(text, "mamba_ssm_dtype")?.unwrap_or(dtype);
    Ok(vec![
        conv(Role::ConvQuery, keys, key_dim, kernel, dtype),
        conv(Role::ConvKey, keys, key_dim, kernel, dtype),
        conv(Role::ConvValue, values, value_dim, kernel, dtype),
        temporal(values, key_dim * value_dim, temporal_dtype),
    ])
}

/// transformers convolves `hidden_size` channels, vLLM the `conv_dim` that older configs also
/// state: where the two differ, engines do.
fn short_conv(
    text: &Fields<'_>,
    conv_l_cache: u32,
    hidden_size: Option<u32>,
    dtype: DType,
) -> Result<Vec<LayerPart>, Problem> {
    let kernel = text.number(&CONV_L_CACHE, Some(conv_l_cache))?;
    let hidden = text.number(&HIDDEN_SIZE, hidden_size)?;
    let channels = text.number(&CONV_DIM, Some(hidden))?;
    if channels != hidden {
        return Err(Problem::Contradiction {
            field: text.path(CONV_DIM.name()),
            value: channels.to_string(),
            other: text.path(HIDDEN_SIZE.name()),
            other_value: hidden.to_string(),
        });
    }
    Ok(vec![conv(Role::ConvInput, hidden, 1, kernel, dtype)])
}

/// The window of a convolution over `kernel` columns, for units of `channels` channels.
///
/// `fields.rs` limits the factors so that no product here, nor in a caller, leaves u32.
fn conv(role: Role, units: u32, channels: u32, kernel: u32, dtype: DType) -> LayerPart {
    LayerPart { role, units, bytes: channels * (kernel - 1) * dtype.bytes() }
}

fn temporal(units: u32, elements: u32, dtype: DType) -> LayerPart {
    LayerPart { role: Role::Temporal, units, bytes: elements * dtype.bytes() }
}
