//! Update programs: from an array of steps to the engine's stored form, and back.

use engine::{Error, Op, Overflow, Program, Result};

use crate::border::{Bytes, Out, Status, array, check_flags, enter, need, null, unknown};
use crate::constants::*;
use crate::monitor::{Owner, frond_list};
use crate::types::frond_step;

fn to_engine(step: &frond_step<'_>) -> Result<Op> {
    let adds = step.kind == FROND_STEP_ADD;
    check_flags(step.flags, if adds { FROND_STEP_BIG_ENDIAN | FROND_STEP_SIGNED | FROND_STEP_SATURATE } else { 0 })?;
    let bytes = || step.bytes.get().map(<[u8]>::to_vec);
    Ok(match step.kind {
        FROND_STEP_SET_BYTES => Op::SetBytes { offset: step.offset, bytes: bytes()? },
        FROND_STEP_ADD => Op::Add {
            offset: step.offset,
            width: match u8::try_from(step.width) {
                Ok(width @ 1..=8) => width,
                _ => return Err(unknown("width", step.width)),
            },
            big_endian: step.flags & FROND_STEP_BIG_ENDIAN != 0,
            signed: step.flags & FROND_STEP_SIGNED != 0,
            delta: step.delta,
            overflow: if step.flags & FROND_STEP_SATURATE != 0 { Overflow::Saturate } else { Overflow::Wrap },
        },
        FROND_STEP_IF_NULL => Op::IfNull { value: bytes()? },
        FROND_STEP_APPEND => Op::Append { bytes: bytes()? },
        _ => return Err(unknown("kind", step.kind)),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_program_encode(
    steps: *const frond_step<'_>,
    count: usize,
    buffer: *mut u8,
    capacity: usize,
    size: Out<'_, usize>,
) -> Status {
    enter("frond_program_encode", || {
        let size = need(size, "size")?;
        if buffer.is_null() && capacity > 0 {
            return Err(null("buffer"));
        }
        // Safety: C2.
        let steps = unsafe { array(steps, count)? };
        let mut encoded = Vec::new();
        Program { ops: steps.iter().map(to_engine).collect::<Result<_>>()? }.encode(&mut encoded);
        size.write(encoded.len());
        if encoded.len() > capacity {
            return Err(Error::invalid(format!("buffer too small, bytes={} capacity={capacity}", encoded.len())));
        }
        if !encoded.is_empty() {
            // Safety: the buffer is writable (C1), long enough, not NULL (its capacity is not 0), and not `encoded`.
            unsafe { buffer.copy_from_nonoverlapping(encoded.as_ptr(), encoded.len()) };
        }
        Ok(())
    })
}

fn from_engine(op: &Op, owner: &mut Owner) -> frond_step<'static> {
    let mut step = |kind, offset, bytes: &[u8]| frond_step {
        kind,
        offset,
        width: 0,
        flags: 0,
        delta: 0,
        bytes: Bytes::handed_out(owner.slice(bytes)),
    };
    match op {
        Op::SetBytes { offset, bytes } => step(FROND_STEP_SET_BYTES, *offset, bytes),
        Op::Add { offset, width, big_endian, signed, delta, overflow } => {
            let flag = |on: bool, flag: u32| if on { flag } else { 0 };
            let saturates = *overflow == Overflow::Saturate;
            frond_step {
                width: u32::from(*width),
                flags: flag(*big_endian, FROND_STEP_BIG_ENDIAN)
                    | flag(*signed, FROND_STEP_SIGNED)
                    | flag(saturates, FROND_STEP_SATURATE),
                delta: *delta,
                ..step(FROND_STEP_ADD, *offset, b"")
            }
        }
        Op::IfNull { value } => step(FROND_STEP_IF_NULL, 0, value),
        Op::Append { bytes } => step(FROND_STEP_APPEND, 0, bytes),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_program_decode(
    program: Bytes<'_>,
    list: Out<'_, Option<Box<frond_list>>>,
    steps: Out<'_, *const frond_step<'static>>,
    count: Out<'_, usize>,
) -> Status {
    enter("frond_program_decode", || {
        let program = Program::decode(program.get()?).map_err(|error| Error::invalid(error.message()))?;
        let mut owner = Owner::new();
        let decoded = program.ops.iter().map(|op| from_engine(op, &mut owner)).collect();
        owner.give(decoded, list, steps, count)
    })
}
