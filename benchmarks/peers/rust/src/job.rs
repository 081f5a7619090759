//! What the bench tells a peer to do; see job.py.

use serde::Deserialize;

#[derive(Deserialize)]
pub struct Job {
    pub bootstrap: String,
    pub group: String,
    pub input: String,
    pub output: String,
    pub format: String,
    pub nested: bool,
    pub schema: String,
    pub prediction_schema: String,
    pub model_file: String,
    pub model: String,
    pub version: i32,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    pub event_id: String,
    pub event_time: String,
    pub max_events: usize,
    pub max_wait_ms: u64,
}

#[derive(Deserialize)]
pub struct Input {
    pub tensor: String,
    pub dtype: String,
    pub shape: Vec<i64>,
    pub field: Option<String>,
    pub fields: Option<Vec<serde_json::Value>>, // a name, or what nested.rs does in code
}

#[derive(Deserialize)]
pub struct Output {
    pub tensor: String,
    pub name: String,
}
