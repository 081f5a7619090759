//! Predictions (schema prediction-v1, float outputs) as bytes: Avro in the wire format, or JSON.

use std::io::Write;
use std::path::Path;

use crate::events::Events;
use crate::job::Job;

pub struct Predictions {
    json: bool,
    head: Vec<u8>,
    origin: Vec<u8>,
    json_origin: String,
    names: Vec<String>,
    out: Vec<u8>,
}

impl Predictions {
    pub fn new(job: &Job) -> Self {
        let file = Path::new(&job.prediction_schema).file_name().and_then(|name| name.to_str()).unwrap_or("");
        let id: u32 = file.split('-').next().and_then(|id| id.parse().ok()).unwrap_or(0);
        let mut origin = Vec::new();
        text(&mut origin, job.model.as_bytes()); // pipeline
        text(&mut origin, job.model.as_bytes());
        long(&mut origin, i64::from(job.version));
        text(&mut origin, b"primary");
        Self {
            json: job.format == "json",
            head: [&[0u8][..], &id.to_be_bytes()].concat(),
            origin,
            json_origin: format!(
                r#""pipeline":"{0}","model":"{0}","version":{1},"variant":"primary""#,
                job.model, job.version
            ),
            names: job.outputs.iter().map(|output| output.name.clone()).collect(),
            out: Vec::new(),
        }
    }

    pub fn write(
        &mut self,
        events: &Events,
        row: usize,
        size: usize,
        columns: &[&[f32]],
        ingest_time: i64,
        prediction_time: i64,
    ) -> &[u8] {
        self.out.clear();
        if self.json {
            self.write_json(events, row, size, columns, ingest_time, prediction_time);
        } else {
            self.write_avro(events, row, size, columns, ingest_time, prediction_time);
        }
        &self.out
    }

    fn write_avro(&mut self, events: &Events, row: usize, size: usize, columns: &[&[f32]], ingest: i64, made: i64) {
        let out = &mut self.out;
        out.extend_from_slice(&self.head);
        text(out, events.id(row));
        long(out, events.times[row]);
        out.extend_from_slice(&self.origin);
        long(out, ingest);
        long(out, made);
        long(out, columns.len() as i64);
        for (name, column) in self.names.iter().zip(columns) {
            text(out, name.as_bytes());
            let width = column.len() / size;
            if width != 1 {
                long(out, 5); // the union's branch
                long(out, width as i64);
            }
            for value in &column[row * width..(row + 1) * width] {
                out.push(0);
                out.extend_from_slice(&value.to_le_bytes());
            }
            if width != 1 {
                out.push(0);
            }
        }
        out.push(0);
    }

    fn write_json(&mut self, events: &Events, row: usize, size: usize, columns: &[&[f32]], ingest: i64, made: i64) {
        let out = &mut self.out;
        out.extend_from_slice(br#"{"event_id":"#);
        // Writing to a vector does not fail.
        let _ = serde_json::to_writer(&mut *out, &String::from_utf8_lossy(events.id(row)));
        let _ = write!(
            out,
            r#","event_time":{},{},"ingest_time":{ingest},"prediction_time":{made},"outputs":{{"#,
            events.times[row], self.json_origin
        );
        for (place, (name, column)) in self.names.iter().zip(columns).enumerate() {
            let width = column.len() / size;
            let values = &column[row * width..(row + 1) * width];
            let _ = write!(out, r#"{}"{name}":"#, if place == 0 { "" } else { "," });
            let _ = if width == 1 {
                serde_json::to_writer(&mut *out, &values[0])
            } else {
                serde_json::to_writer(&mut *out, values)
            };
        }
        out.extend_from_slice(b"}}");
    }
}

fn long(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = (value << 1 ^ value >> 63) as u64;
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

fn text(out: &mut Vec<u8>, utf8: &[u8]) {
    long(out, utf8.len() as i64);
    out.extend_from_slice(utf8);
}
