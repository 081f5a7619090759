//! The consumer a Rust engineer writes by hand, at least once: rdkafka and ONNX Runtime; events are read straight into the model's
//! tensors, predictions written straight to bytes. One thread of its own, and librdkafka's threads. The native floor of the bench.
//!
//! Tried, 12 backlogs each in turns, ratios of events/s within 0.15: linger.ms 20 (1.02), queued.min.messages 1,000,000 (1.10),
//! a broker that collects 100 kB (0.93), batch.size 256 KiB (0.82, and a third more CPU), the default fetch.queue.backoff.ms (0.39).

mod events;
mod job;
mod nested;
mod predictions;

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use events::Events;
use job::Job;
use predictions::Predictions;

const CHECKPOINT_EVERY: Duration = Duration::from_millis(100);
const FLUSH_WITHIN: Duration = Duration::from_secs(60);

static STOPPING: AtomicBool = AtomicBool::new(false);
static FAILED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: i32) {
    STOPPING.store(true, Ordering::Relaxed);
}

extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
}

struct Reports;

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            eprintln!("not delivered: {error}");
            FAILED.store(true, Ordering::Relaxed);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    unsafe { signal(15, stop) };
    let mut arguments = std::env::args().skip(1);
    let job: Job = serde_json::from_slice(&std::fs::read(arguments.next().ok_or("JOB LIBONNXRUNTIME")?)?)?;
    let environment = ort::init_from(arguments.next().ok_or("JOB LIBONNXRUNTIME")?)?.build()?;
    Peer::new(&job, &environment)?.run()
}

struct Peer<'a> {
    job: &'a Job,
    session: Session,
    consumer: BaseConsumer,
    producer: BaseProducer<Reports>,
    events: Events,
    predictions: Predictions,
    keys: Vec<Option<Vec<u8>>>,
    unflushed: bool,
}

impl<'a> Peer<'a> {
    fn new(job: &'a Job, environment: &Environment) -> Result<Self, Box<dyn Error>> {
        let session = Session::builder(environment)?.with_intra_threads(1)?.commit_from_file(&job.model_file)?;
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &job.bootstrap)
            .set("group.id", &job.group)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .set("partition.assignment.strategy", "cooperative-sticky")
            // Who is quicker than it fetches ahead waits for the rest of a second by default.
            .set("fetch.queue.backoff.ms", "20")
            .create()?;
        let producer = ClientConfig::new()
            .set("bootstrap.servers", &job.bootstrap)
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .set("batch.size", "1000000")
            .set("delivery.report.only.error", "true")
            .create_with_context(Reports)?;
        Ok(Self {
            job,
            session,
            consumer,
            producer,
            events: Events::new(job)?,
            predictions: Predictions::new(job),
            keys: Vec::new(),
            unflushed: false,
        })
    }

    fn run(&mut self) -> Result<(), Box<dyn Error>> {
        self.consumer.subscribe(&[&self.job.input])?;
        let window = Duration::from_millis(self.job.max_wait_ms);
        let mut due = Instant::now();
        let mut checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
        while !STOPPING.load(Ordering::Relaxed) {
            let wait = if self.keys.is_empty() { window } else { due.saturating_duration_since(Instant::now()) };
            match self.consumer.poll(wait) {
                Some(Ok(message)) => {
                    if self.keys.is_empty() {
                        due = Instant::now() + window;
                    }
                    self.events.read(message.payload().ok_or("no value")?)?;
                    self.keys.push(message.key().map(<[u8]>::to_vec));
                }
                Some(Err(error)) => return Err(error.into()),
                None => {}
            }
            let size = self.keys.len();
            if size == self.job.max_events || (size > 0 && Instant::now() >= due) {
                self.process()?;
                // Only between batches: what is committed is what was read.
                if Instant::now() >= checkpoint_at {
                    self.checkpoint()?;
                    checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
                }
            } else if size == 0 && self.unflushed && Instant::now() >= checkpoint_at {
                self.checkpoint()?;
                checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
            }
        }
        if self.keys.is_empty() {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn process(&mut self) -> Result<(), Box<dyn Error>> {
        let ingest_time = now();
        let inputs: Vec<(&str, SessionInputValue<'_>)> = self.events.tensors(self.keys.len())?;
        let outputs = self.session.run(inputs)?;
        let mut columns = Vec::with_capacity(self.job.outputs.len());
        for output in &self.job.outputs {
            columns.push(outputs[output.tensor.as_str()].try_extract_tensor::<f32>()?.1);
        }
        let prediction_time = now();
        for (row, key) in self.keys.iter().enumerate() {
            let value = self.predictions.write(&self.events, row, self.keys.len(), &columns, ingest_time, prediction_time);
            let mut record = BaseRecord::<[u8], [u8]>::to(&self.job.output).payload(value);
            if let Some(key) = key {
                record = record.key(key);
            }
            while let Err((error, unsent)) = self.producer.send(record) {
                if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                    return Err(error.into());
                }
                self.producer.poll(Duration::from_millis(1));
                record = unsent;
            }
        }
        self.producer.poll(Duration::ZERO);
        self.events.clear();
        self.keys.clear();
        self.unflushed = true;
        Ok(())
    }

    /// Wait until all is delivered. rdkafka's own `flush` polls for 100 ms at a time, whatever comes meanwhile: a seventh of the
    /// events/s, and a p99 of 110 ms.
    fn flush(&self) -> Result<(), Box<dyn Error>> {
        let until = Instant::now() + FLUSH_WITHIN;
        while let Err(error) = self.producer.flush(Duration::ZERO) {
            if error != KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut) || Instant::now() >= until {
                return Err(error.into());
            }
            self.producer.poll(Duration::from_millis(1));
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), Box<dyn Error>> {
        if self.unflushed {
            self.flush()?;
            if FAILED.load(Ordering::Relaxed) {
                return Err("a prediction was not delivered".into());
            }
            self.consumer.commit_consumer_state(CommitMode::Async)?;
            self.unflushed = false;
        }
        Ok(())
    }
}

/// Milliseconds since the epoch.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
