use noren_mask::{Error, Facts, Shape, Spec};

pub fn main() -> Result<(), Error> {
    let spec: Spec = r#"causal & padding + softcap(30)"#.parse()?;
    let shape = Shape::from_json(r#"{"batch":2,"heads":1,"kv_heads":1,"q_len":5,"kv_len":5,"query_offset":0}"#)?;
    let facts = Facts::from_json(r#"{"lengths":[5,3]}"#)?;
    let bound = spec.mask.bind(&shape, &facts)?;
    println!("{}", bound.plan().stats());
    Ok(())
}
