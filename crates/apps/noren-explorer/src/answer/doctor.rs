//! The answers for the doctor view: the diagnosis of a mask in a file, and the catalogue of mistakes.

use crate::request::message::JSON;
use crate::request::problem::Problem;
use crate::request::query::Query;
use crate::request::scene::cells_definition;
use crate::request::state::{Answer, json};
use crate::request::store::identity;
use crate::request::wire::Frame;
use noren_doctor::{Context, Input, Report};
use noren_input::arrays::read_from;
use noren_input::npy::write_npy_values;
use noren_mask::Keep;
use serde_json::json as object;
use std::io::Cursor;

/// The maximum size of a repaired array for the page, in bytes.
const MOST_REPAIR: usize = 128 << 20;

/// Diagnoses the mask of a file. The other arrays of the file, such as token ids, describe the batch of the mask.
pub(crate) fn doctor(query: &Query, file: &[u8]) -> Answer {
    let name = query.text("name").unwrap_or_else(|| "the file".into());
    let arrays = read_from(Cursor::new(file), file.len() as u64, &name)?;
    let names: Vec<String> = arrays.iter().map(|(name, _)| name.clone()).collect();
    let context = query.text("context").as_deref().map_or(Ok(Context::default()), Context::from_json)?;
    let mut input = Input::of_arrays(arrays).context(context);
    if input.mask().is_none() {
        let problem = Problem::new(format!(
            "{}: none of the arrays in this file has the name `mask`; the file has {}",
            name,
            listed(&names)
        ));
        return Err(problem
            .hint("give the array of the mask the name `mask`; the file may also have other arrays")
            .into());
    }
    if let (Some(text), Some(shape)) = (query.text("meant"), input.shape(None)?) {
        let spec = crate::request::scene::parse(&text, None)?;
        let bound = spec.mask.bind(&shape, &Default::default())?;
        input = input.intended(&spec, &bound, false)?;
    }
    let report = input.diagnose()?;
    if query.flag("repair")? {
        return repaired(&report);
    }
    let mut body = report.to_json();
    let mut definitions = Vec::new();
    for (key, keep, name) in [("given", &report.given, "given"), ("fixed", &report.fixed, "repaired")] {
        let definition = keep.as_ref().map(|keep| cells_definition(name, keep));
        body[key] = object!(definition.as_deref().map(identity));
        definitions.extend(definition);
    }
    body["arrays"] = object!(names);
    body["repaired"] = object!(report.repair.is_some());
    body["dims"] = object!(report.given.as_ref().map(Keep::dims));
    let mut answer = Frame::of(JSON, serde_json::to_vec(&body)?);
    answer.blobs.extend(definitions);
    Ok(answer)
}

/// Returns the repaired array as an npy file, in the shape, number type and convention of the given array.
fn repaired(report: &Report) -> Answer {
    let none = || Problem::new("there is no repaired array in the shape of the given array");
    let mut bytes = Vec::new();
    write_npy_values(&mut bytes, report.repair.as_ref().ok_or_else(none)?)
        .map_err(|e| Problem::status(500, e.to_string()))?;
    if bytes.len() > MOST_REPAIR {
        let problem = Problem::new(format!("the repaired array is larger than {MOST_REPAIR} bytes"));
        return Err(problem.hint("write it with `noren check --fix`, which has no such limit").into());
    }
    Ok(Frame::file("repaired.npy".into(), "application/octet-stream", bytes))
}

/// Returns the names of the arrays of a file as text, for an error message.
fn listed(names: &[String]) -> String {
    match names {
        [] => "no array".to_string(),
        names => format!("the arrays {}", names.join(", ")),
    }
}

/// Returns the catalogue of known mistakes in masks as JSON.
pub(crate) fn classes() -> Answer {
    let class = |class: &noren_doctor::Class| {
        object!({
            "code": class.code,
            "name": class.name,
            "tier": class.tier,
            "title": class.title,
            "shows": class.shows,
            "found": class.found,
            "cause": class.cause(),
            "repair": class.repair,
            "example": class.example.map(|example| object!({
                "wrong": example.wrong,
                "right": example.right,
                "shape": { "q": example.shape.0, "kv": example.shape.1, "query_offset": example.shape.2 },
            })),
        })
    };
    json(&noren_doctor::classes().iter().map(class).collect::<Vec<_>>())
}
