//! Events of one batch as the model's tensors: from Avro in the wire format by the schema's fields, or from JSON.

use std::error::Error;

use ort::session::SessionInputValue;
use ort::value::{Tensor, TensorRef};
use serde::Deserialize;
use serde_json::Value;

use crate::job::{Input, Job};
use crate::nested;

const HEAD: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

enum Column {
    Floats(Vec<f32>),
    Longs(Vec<i64>),
    Texts(Vec<String>),
}

/// One input of the model; its column has the events' elements in row-major order.
struct Tensors {
    name: String,
    shape: Vec<i64>,
    width: usize,
    column: Column,
}

#[derive(Clone, Copy)]
enum Kind {
    Null,
    Number,
    Float,
    Double,
    Text,
}

enum Step {
    Id,
    Time,
    Skip(Vec<Kind>), // the branches of a union, or the one type
    Fill { input: usize, place: usize, kind: Kind },
    FillArray { input: usize, kind: Kind },
}

pub struct Events {
    pub ids: Vec<u8>, // one after another
    pub id_ends: Vec<usize>,
    pub times: Vec<i64>,
    json: bool,
    nested: bool,
    steps: Vec<Step>,
    inputs: Vec<Tensors>,
}

/// The JSON workload's event.
#[derive(Deserialize)]
struct JsonEvent<'a> {
    id: &'a str,
    event_time: i64,
    x: Vec<f32>,
}

impl Events {
    pub fn new(job: &Job) -> Result<Self> {
        let schema: Value = serde_json::from_slice(&std::fs::read(&job.schema)?)?;
        let fields = schema["fields"].as_array().ok_or("a record's schema")?;
        Ok(Self {
            ids: Vec::new(),
            id_ends: Vec::new(),
            times: Vec::new(),
            json: job.format == "json",
            nested: job.nested,
            steps: if job.nested { Vec::new() } else { fields.iter().map(|field| step(field, job)).collect::<Result<_>>()? },
            inputs: job.inputs.iter().map(tensors).collect(),
        })
    }

    pub fn clear(&mut self) {
        self.ids.clear();
        self.id_ends.clear();
        self.times.clear();
        for input in &mut self.inputs {
            match &mut input.column {
                Column::Floats(values) => values.clear(),
                Column::Longs(values) => values.clear(),
                Column::Texts(values) => values.clear(),
            }
        }
    }

    pub fn id(&self, row: usize) -> &[u8] {
        &self.ids[if row == 0 { 0 } else { self.id_ends[row - 1] }..self.id_ends[row]]
    }

    pub fn read(&mut self, value: &[u8]) -> Result<()> {
        if self.json {
            return if self.nested { self.add(nested::from_json(value)?) } else { self.read_json(value) };
        }
        if value.first() != Some(&0) || value.len() < HEAD {
            return Err("not in the wire format".into());
        }
        if self.nested {
            return self.add(nested::from_avro(&value[HEAD..])?);
        }
        self.grow();
        let row = self.times.len();
        let mut reader = Reader { bytes: &value[HEAD..] };
        for step in &self.steps {
            match step {
                Step::Id => {
                    self.ids.extend_from_slice(reader.text()?);
                    self.id_ends.push(self.ids.len());
                }
                Step::Time => self.times.push(reader.long()?),
                Step::Skip(kinds) => reader.skip(kinds)?,
                Step::Fill { input, place, kind } => {
                    let input = &mut self.inputs[*input];
                    let at = row * input.width + place;
                    match &mut input.column {
                        Column::Texts(values) => values[at].push_str(std::str::from_utf8(reader.text()?)?),
                        Column::Floats(values) => values[at] = reader.float_of(*kind)?,
                        Column::Longs(values) => values[at] = reader.long()?,
                    }
                }
                Step::FillArray { input, kind } => {
                    let input = &mut self.inputs[*input];
                    reader.array(&mut input.column, row * input.width, input.width, *kind)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, (id, time, numbers, categories): nested::Row<'_>) -> Result<()> {
        self.ids.extend_from_slice(id);
        self.id_ends.push(self.ids.len());
        self.times.push(time);
        for input in &mut self.inputs {
            match &mut input.column {
                Column::Floats(values) => values.extend_from_slice(&numbers),
                Column::Longs(values) => values.extend_from_slice(&categories),
                Column::Texts(_) => return Err("nested orders have no texts as inputs".into()),
            }
        }
        Ok(())
    }

    /// Room for one more event.
    fn grow(&mut self) {
        for input in &mut self.inputs {
            match &mut input.column {
                Column::Floats(values) => values.resize(values.len() + input.width, 0.0),
                Column::Longs(values) => values.resize(values.len() + input.width, 0),
                Column::Texts(values) => values.resize(values.len() + input.width, String::new()),
            }
        }
    }

    fn read_json(&mut self, value: &[u8]) -> Result<()> {
        let event: JsonEvent<'_> = serde_json::from_slice(value)?;
        self.ids.extend_from_slice(event.id.as_bytes());
        self.id_ends.push(self.ids.len());
        self.times.push(event.event_time);
        let input = &mut self.inputs[0];
        match &mut input.column {
            Column::Floats(values) if event.x.len() == input.width => values.extend_from_slice(&event.x),
            _ => return Err("an event that does not fit".into()),
        }
        Ok(())
    }

    pub fn tensors(&self, size: usize) -> Result<Vec<(&str, SessionInputValue<'_>)>> {
        let mut made = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let mut shape = vec![size as i64];
            shape.extend_from_slice(&input.shape);
            let value: SessionInputValue<'_> = match &input.column {
                Column::Floats(values) => TensorRef::from_array_view((shape, values.as_slice()))?.into(),
                Column::Longs(values) => TensorRef::from_array_view((shape, values.as_slice()))?.into(),
                Column::Texts(values) => Tensor::from_string_array((shape, values.as_slice()))?.into(),
            };
            made.push((input.name.as_str(), value));
        }
        Ok(made)
    }
}

fn tensors(input: &Input) -> Tensors {
    Tensors {
        name: input.tensor.clone(),
        shape: input.shape.clone(),
        width: input.shape.iter().product::<i64>() as usize,
        column: match input.dtype.as_str() {
            "int64" => Column::Longs(Vec::new()),
            "string" => Column::Texts(Vec::new()),
            _ => Column::Floats(Vec::new()),
        },
    }
}

fn step(field: &Value, job: &Job) -> Result<Step> {
    let name = field["name"].as_str().ok_or("a field's name")?;
    let kind = &field["type"];
    for (input, spec) in job.inputs.iter().enumerate() {
        if spec.field.as_deref() == Some(name) {
            return Ok(Step::FillArray { input, kind: kind_of(&kind["items"])? });
        }
        if let Some(place) = spec.fields.iter().flatten().position(|one| one == name) {
            return Ok(Step::Fill { input, place, kind: kind_of(kind)? });
        }
    }
    Ok(if name == job.event_id {
        Step::Id
    } else if name == job.event_time {
        Step::Time
    } else if let Some(branches) = kind.as_array() {
        Step::Skip(branches.iter().map(kind_of).collect::<Result<_>>()?)
    } else {
        Step::Skip(vec![kind_of(kind)?])
    })
}

fn kind_of(kind: &Value) -> Result<Kind> {
    match kind.as_str().or_else(|| kind["type"].as_str()) {
        Some("null") => Ok(Kind::Null),
        Some("int" | "long") => Ok(Kind::Number),
        Some("float") => Ok(Kind::Float),
        Some("double") => Ok(Kind::Double),
        Some("string") => Ok(Kind::Text),
        _ => Err(format!("expected a simple type, found {kind}").into()),
    }
}

/// Reads Avro's binary encoding.
pub struct Reader<'a> {
    pub bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.bytes.len() {
            return Err("the record ends too early".into());
        }
        let (taken, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(taken)
    }

    pub fn long(&mut self) -> Result<i64> {
        let mut value = 0u64;
        for (place, byte) in self.bytes.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[place + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err("a number without end".into())
    }

    pub fn text(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.long()?)?;
        self.take(length)
    }

    fn float_of(&mut self, kind: Kind) -> Result<f32> {
        Ok(match kind {
            Kind::Float => f32::from_le_bytes(self.take(4)?.try_into()?),
            Kind::Double => f64::from_le_bytes(self.take(8)?.try_into()?) as f32,
            _ => self.long()? as f32,
        })
    }

    fn array(&mut self, column: &mut Column, start: usize, width: usize, kind: Kind) -> Result<()> {
        let mut at = start;
        loop {
            let mut count = self.long()?;
            if count < 0 {
                count = -count;
                self.long()?; // the block's bytes
            }
            if count == 0 {
                return if at == start + width { Ok(()) } else { Err("an array of another length".into()) };
            }
            let end = at + count as usize;
            if end > start + width {
                return Err("an array of another length".into());
            }
            match (&mut *column, kind) {
                (Column::Floats(values), Kind::Float) => {
                    let bytes = self.take(4 * count as usize)?;
                    for (value, four) in values[at..end].iter_mut().zip(bytes.chunks_exact(4)) {
                        *value = f32::from_le_bytes(four.try_into()?);
                    }
                }
                (Column::Floats(values), kind) => {
                    for value in &mut values[at..end] {
                        *value = self.float_of(kind)?;
                    }
                }
                (Column::Longs(values), _) => {
                    for value in &mut values[at..end] {
                        *value = self.long()?;
                    }
                }
                (Column::Texts(_), _) => return Err("an array of texts".into()),
            }
            at = end;
        }
    }

    fn skip(&mut self, kinds: &[Kind]) -> Result<()> {
        let branch = if kinds.len() > 1 { usize::try_from(self.long()?)? } else { 0 };
        match kinds.get(branch).ok_or("a branch that the union lacks")? {
            Kind::Null => {}
            Kind::Number => {
                self.long()?;
            }
            Kind::Float => {
                self.take(4)?;
            }
            Kind::Double => {
                self.take(8)?;
            }
            Kind::Text => {
                self.text()?;
            }
        }
        Ok(())
    }
}
