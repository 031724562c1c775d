//! Weights that a seed decides.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Where weights come from.
pub(super) struct Draw(ChaCha8Rng);

/// Rows of weights.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    columns: usize,
    cells: Vec<f64>,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Numbers within −1 and 1.
    pub(super) fn vector(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.0.random_range(-1.0..1.0)).collect()
    }

    pub(super) fn matrix(&mut self, rows: usize, columns: usize) -> Matrix {
        Matrix { columns, cells: self.vector(rows * columns) }
    }

    /// Numbers below `end`.
    pub(super) fn below(&mut self, end: usize, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.0.random_range(0..end)).collect()
    }
}

impl Matrix {
    pub(super) fn row(&self, index: usize) -> &[f64] {
        &self.cells[index * self.columns..][..self.columns]
    }

    pub(super) fn times(&self, vector: &[f64]) -> Vec<f64> {
        self.cells.chunks_exact(self.columns).map(|row| dot(row, vector)).collect()
    }
}

/// Always summed from the front: two engines must round alike.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sum = 0.0;
    for (a, b) in a.iter().zip(b) {
        sum += a * b;
    }
    sum
}

/// `to += by × row`.
pub(super) fn add(to: &mut [f64], by: f64, row: &[f64]) {
    for (to, cell) in to.iter_mut().zip(row) {
        *to += by * cell;
    }
}

/// The vector at length √n.
pub(super) fn normed(vector: &[f64]) -> Vec<f64> {
    let scale = (dot(vector, vector) / vector.len() as f64 + 1e-6).sqrt();
    vector.iter().map(|cell| cell / scale).collect()
}

pub(super) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
