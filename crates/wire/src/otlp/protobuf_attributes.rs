//! Attributes in protobuf messages: `KeyValue` and `AnyValue`.

use std::borrow::Cow;
use std::fmt::Write;

use super::attribute_value::{push_base64, push_double, push_quoted};
use super::{ATTRIBUTES_MAX, Attribute, OtlpError, Scope, VALUE_DEPTH_MAX};
use crate::protobuf_fields::{Field, FieldReader};

pub(super) fn text<'a>(field: &Field<'a>) -> Result<Cow<'a, str>, OtlpError> {
    let text = std::str::from_utf8(field.bytes()?).map_err(|_| OtlpError::Utf8)?;
    Ok(Cow::Borrowed(text))
}

/// Adds a `KeyValue` to a list. Beyond the limit it is validated but not added.
pub(super) fn push_attribute<'a>(
    attributes: &mut Vec<Attribute<'a>>,
    message: &'a [u8],
) -> Result<(), OtlpError> {
    let attribute = read_attribute(message, 0)?;
    if attributes.len() < ATTRIBUTES_MAX {
        attributes.push(attribute);
    }
    Ok(())
}

/// Reads the attributes of a `Resource`.
pub(super) fn read_resource<'a>(
    message: &'a [u8],
    attributes: &mut Vec<Attribute<'a>>,
) -> Result<(), OtlpError> {
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        if field.number == 1 {
            push_attribute(attributes, field.bytes()?)?;
        }
    }
    Ok(())
}

/// Reads an `InstrumentationScope`.
pub(super) fn read_scope<'a>(message: &'a [u8], scope: &mut Scope<'a>) -> Result<(), OtlpError> {
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => scope.name = text(&field)?,
            2 => scope.version = text(&field)?,
            3 => push_attribute(&mut scope.attributes, field.bytes()?)?,
            _ => {}
        }
    }
    Ok(())
}

fn read_attribute(message: &[u8], depth: usize) -> Result<Attribute<'_>, OtlpError> {
    let (mut key, mut value) = (Cow::Borrowed(""), Cow::Borrowed(""));
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => key = text(&field)?,
            2 => value = read_value(field.bytes()?, depth)?,
            _ => {}
        }
    }
    Ok(Attribute { key, value })
}

/// Returns an `AnyValue` as text. If a message has several values, the last is used.
fn read_value(message: &[u8], depth: usize) -> Result<Cow<'_, str>, OtlpError> {
    let mut value = Cow::Borrowed("");
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        value = match field.number {
            1 => text(&field)?,
            2..=7 => {
                let mut json = String::new();
                write_value(&mut json, &field, depth)?;
                // Bytes are quoted in JSON only.
                match field.number {
                    7 => json.trim_matches('"').to_owned().into(),
                    _ => json.into(),
                }
            }
            _ => value,
        };
    }
    Ok(value)
}

/// Appends a value inside a list or map as JSON.
fn write_any(out: &mut String, message: &[u8], depth: usize) -> Result<(), OtlpError> {
    let mut fields = FieldReader::new(message);
    let mut last = None;
    while let Some(field) = fields.next_field()? {
        if (1..=7).contains(&field.number) {
            last = Some(field);
        }
    }
    match last {
        Some(field) => write_value(out, &field, depth),
        None => {
            out.push_str("null");
            Ok(())
        }
    }
}

fn write_value(out: &mut String, field: &Field<'_>, depth: usize) -> Result<(), OtlpError> {
    match field.number {
        1 => push_quoted(out, &text(field)?),
        2 => out.push_str(if field.number()? == 0 {
            "false"
        } else {
            "true"
        }),
        3 => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", field.number()? as i64);
        }
        4 => push_double(out, field.double()?),
        5 | 6 => write_list(out, field, depth + 1)?,
        _ => {
            out.push('"');
            push_base64(out, field.bytes()?);
            out.push('"');
        }
    }
    Ok(())
}

/// Appends an `ArrayValue` (field 5) or a `KeyValueList` (field 6).
fn write_list(out: &mut String, field: &Field<'_>, depth: usize) -> Result<(), OtlpError> {
    if depth > VALUE_DEPTH_MAX {
        return Err(OtlpError::TooDeep);
    }
    let is_map = field.number == 6;
    out.push(if is_map { '{' } else { '[' });
    let mut fields = FieldReader::new(field.bytes()?);
    let mut is_first = true;
    while let Some(entry) = fields.next_field()? {
        if entry.number != 1 {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            out.push(',');
        }
        match is_map {
            true => write_entry(out, entry.bytes()?, depth)?,
            false => write_any(out, entry.bytes()?, depth)?,
        }
    }
    out.push(if is_map { '}' } else { ']' });
    Ok(())
}

fn write_entry(out: &mut String, message: &[u8], depth: usize) -> Result<(), OtlpError> {
    let (mut key, mut value) = (Cow::Borrowed(""), &[][..]);
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => key = text(&field)?,
            2 => value = field.bytes()?,
            _ => {}
        }
    }
    push_quoted(out, &key);
    out.push(':');
    write_any(out, value, depth)
}
