//! Nested orders, as nested.py has them: typed structs read by serde, or Avro by hand; the features are written straight into the
//! model's tensors.

use std::error::Error;

use chrono::{DateTime, Timelike};
use serde::Deserialize;

use crate::events::Reader;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const COUNTRIES: [&str; 19] = [
    "other", "DE", "FR", "IT", "ES", "PT", "AT", "CH", "NL", "BE", "DK", "SE", "NO", "FI", "PL", "CZ", "IE", "US", "CA",
];
const METHODS: [&str; 6] = ["other", "card", "sepa", "invoice", "wallet", "gift"];

#[derive(Deserialize)]
struct Stats {
    orders_30d: f32,
    spend_30d: f32,
    returns_90d: Option<f32>,
}

#[derive(Deserialize)]
struct Customer<'a> {
    country: &'a str,
    registered_at: i64,
    stats: Stats,
    age: Option<f32>,
}

#[derive(Deserialize)]
struct Card {
    exp_year: f32,
}

#[derive(Deserialize)]
struct Risk {
    attempts: f32,
    score: Option<f32>,
}

#[derive(Deserialize)]
struct Payment<'a> {
    #[serde(borrow)]
    method: &'a str,
    amount: f32,
    card: Card,
    risk: Risk,
}

#[derive(Deserialize)]
struct Item {
    price: f32,
}

#[derive(Deserialize)]
struct Basket {
    count: f32,
    total: f32,
    items: Vec<Item>,
    discount: Option<f32>,
}

#[derive(Deserialize)]
struct Shipping {
    days: f32,
    distance_km: Option<f32>,
}

#[derive(Deserialize)]
struct Screen {
    width: f32,
}

#[derive(Deserialize)]
struct Device {
    screen: Screen,
}

#[derive(Deserialize)]
struct Order<'a> {
    id: &'a str,
    created_at: &'a str,
    #[serde(borrow)]
    customer: Customer<'a>,
    #[serde(borrow)]
    payment: Payment<'a>,
    basket: Basket,
    shipping: Shipping,
    device: Device,
}

/// An event's ID, time in ms, numbers and categories.
pub type Row<'a> = (&'a [u8], i64, [f32; 17], [i64; 2]);

fn place(vocabulary: &[&str], text: &str) -> i64 {
    vocabulary.iter().position(|one| *one == text).unwrap_or(0) as i64
}

pub fn from_json(value: &[u8]) -> Result<Row<'_>> {
    let order: Order<'_> = serde_json::from_slice(value)?;
    let (customer, payment, basket, shipping) = (&order.customer, &order.payment, &order.basket, &order.shipping);
    let created = DateTime::parse_from_rfc3339(order.created_at)?.to_utc();
    let time = created.timestamp_millis();
    let numbers = [
        customer.age.unwrap_or(-1.0),
        customer.stats.orders_30d,
        customer.stats.spend_30d,
        customer.stats.returns_90d.unwrap_or(0.0),
        payment.amount,
        payment.card.exp_year,
        payment.risk.score.unwrap_or(0.5),
        payment.risk.attempts,
        basket.count,
        basket.total,
        basket.discount.unwrap_or(0.0),
        shipping.distance_km.unwrap_or(-1.0),
        shipping.days,
        order.device.screen.width,
        basket.items.first().ok_or("an order without items")?.price,
        created.hour() as f32,
        ((time - customer.registered_at) as f64 / 1000.0) as f32,
    ];
    let categories = [place(&COUNTRIES, customer.country), place(&METHODS, payment.method)];
    Ok((order.id.as_bytes(), time, numbers, categories))
}

fn texts(reader: &mut Reader<'_>, count: usize) -> Result<()> {
    for _ in 0..count {
        reader.text()?;
    }
    Ok(())
}

fn longs(reader: &mut Reader<'_>, count: usize) -> Result<()> {
    for _ in 0..count {
        reader.long()?;
    }
    Ok(())
}

fn double(reader: &mut Reader<'_>) -> Result<f32> {
    Ok(f64::from_le_bytes(reader.take(8)?.try_into()?) as f32)
}

fn present(reader: &mut Reader<'_>) -> Result<bool> {
    Ok(reader.long()? == 1)
}

fn long_or(reader: &mut Reader<'_>, missing: f32) -> Result<f32> {
    Ok(if present(reader)? { reader.long()? as f32 } else { missing })
}

fn double_or(reader: &mut Reader<'_>, missing: f32) -> Result<f32> {
    if present(reader)? {
        double(reader)
    } else {
        Ok(missing)
    }
}

/// The price of the first item.
fn items(reader: &mut Reader<'_>) -> Result<f32> {
    let mut first = None;
    loop {
        let mut count = reader.long()?;
        if count < 0 {
            count = -count;
            reader.long()?; // the block's bytes
        }
        if count == 0 {
            return first.ok_or_else(|| "an order without items".into());
        }
        for _ in 0..count {
            reader.text()?;
            let price = double(reader)?;
            first.get_or_insert(price);
            reader.long()?;
            reader.text()?;
        }
    }
}

/// In the order of the schema's fields.
pub fn from_avro(bytes: &[u8]) -> Result<Row<'_>> {
    let r = &mut Reader { bytes };
    let mut numbers = [0f32; 17];
    let id = r.text()?;
    let time = r.long()?;
    texts(r, 3)?; // type, tenant, customer.id
    numbers[0] = long_or(r, -1.0)?;
    let country = std::str::from_utf8(r.text()?)?;
    r.text()?;
    let registered = r.long()?;
    r.text()?;
    numbers[1] = r.long()? as f32;
    numbers[2] = double(r)?;
    numbers[3] = long_or(r, 0.0)?;
    r.take(8)?; // avg_basket
    longs(r, 2)?;
    texts(r, 2)?; // city, zip
    r.take(16)?; // lat, lon
    let method = std::str::from_utf8(r.text()?)?;
    numbers[4] = double(r)?;
    texts(r, 3)?; // currency, bin, brand
    r.long()?;
    numbers[5] = r.long()? as f32;
    r.text()?;
    numbers[6] = double_or(r, 0.5)?;
    numbers[7] = r.long()? as f32;
    r.take(8)?; // velocity
    numbers[8] = r.long()? as f32;
    numbers[9] = double(r)?;
    numbers[10] = double_or(r, 0.0)?;
    r.text()?;
    if present(r)? {
        r.text()?; // coupon
    }
    numbers[14] = items(r)?;
    r.text()?;
    numbers[11] = double_or(r, -1.0)?;
    numbers[12] = r.long()? as f32;
    r.take(1)?; // express
    texts(r, 8)?; // carrier, the address, os, os_version, browser, ip
    numbers[13] = r.long()? as f32;
    longs(r, 2)?;
    texts(r, 4)?;
    r.long()?;
    if !r.bytes.is_empty() {
        return Err("bytes after the last field".into());
    }
    numbers[15] = (time.div_euclid(3_600_000) % 24) as f32;
    numbers[16] = ((time - registered) as f64 / 1000.0) as f32;
    Ok((id, time, numbers, [place(&COUNTRIES, country), place(&METHODS, method)]))
}
