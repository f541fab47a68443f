//! The system calls that a script has no need of, as programs for the kernel.
//!
//! What is refused reaches beyond the script (sockets, other processes, mounts, namespaces), or is a
//! part of the kernel where holes were found before and no script is expected.

mod calls;

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// The first number that no kernel had given out when this list was written. From 424 on numbers are
/// the same on all architectures. It is below the numbers of the x32 ABI too.
const FIRST_UNKNOWN: u32 = 463;
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// A pair of these can't be sent to anybody else.
const PAIRS: [libc::c_int; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
/// The bits of a socket's type that are no flags.
const SOCKET_TYPES: u64 = 0xf;
const CLOSE_RANGE_UNSHARE: u64 = 2;
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
/// What may be asked of a descriptor where the machine's files are there: its state, nothing that lasts.
const REQUESTS: [u64; 7] = [
    0x5401,      // TCGETS
    0x802c_542a, // TCGETS2
    0x5413,      // TIOCGWINSZ
    0x541b,      // FIONREAD
    0x5421,      // FIONBIO
    0x5450,      // FIONCLEX
    0x5451,      // FIOCLEX
];

/// What other walls hold, so that the filter need not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// The machine's files are out of sight, behind a root of its own.
    pub(super) files: bool,
    /// So is a change of their length, where they are not.
    pub(super) truncation: bool,
    /// Signals reach the script's own processes only.
    pub(super) signals: bool,
}

/// The programs, each in the form that the kernel takes, in the order of their installation; none
/// where this architecture has no filter.
pub(super) fn programs(held: Held) -> Result<Vec<Vec<u8>>, seccompiler::BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let rules = rules(held)?;
    let refused = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()?;
    Ok([absent(), refused].iter().map(bytes).collect())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(held: Held) -> Result<Rules, seccompiler::BackendError> {
    let mut calls = vec![calls::REFUSED, calls::REFUSED_HERE];
    // What `fcntl` may not do: larger pipes, and being told of what others do with a file.
    let mut controls = vec![libc::F_SETPIPE_SZ, libc::F_SETLEASE, libc::F_NOTIFY];
    if !held.signals {
        calls.push(calls::SIGNALS);
        controls.extend([libc::F_SETOWN, F_SETOWN_EX, F_SETSIG]);
    }
    if !held.files {
        calls.extend([calls::ATTRIBUTES, calls::ATTRIBUTES_HERE]);
    }
    if !held.files && !held.truncation {
        calls.push(calls::TRUNCATION);
    }
    let mut rules: Rules = calls.into_iter().flatten().map(|&call| (call, Vec::new())).collect();

    // Namespaces; and a thread with open files of its own, which the keeper would not see.
    let namespaces = NAMESPACES.into_iter().map(|flag| bits(0, flag, flag));
    let files_apart = bits(0, libc::CLONE_THREAD | libc::CLONE_FILES, libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, namespaces.chain([files_apart]).collect::<Result<_, _>>()?);
    let unshare = rule(2, SeccompCmpOp::MaskedEq(CLOSE_RANGE_UNSHARE), CLOSE_RANGE_UNSHARE)?;
    rules.insert(libc::SYS_close_range, vec![unshare]);

    let unix = rule(0, SeccompCmpOp::Ne, libc::AF_UNIX.cast_unsigned().into());
    let others = (0..=SOCKET_TYPES)
        .filter(|kind| PAIRS.iter().all(|pair| u64::from(pair.cast_unsigned()) != *kind))
        .map(|kind| rule(1, SeccompCmpOp::MaskedEq(SOCKET_TYPES), kind));
    rules.insert(libc::SYS_socketpair, others.chain([unix]).collect::<Result<_, _>>()?);

    // The limits of others; its own are lowered at most.
    rules.insert(libc::SYS_prlimit64, vec![rule(0, SeccompCmpOp::Ne, 0)?]);
    // Else nobody could count what it has open.
    let hiding = rule(0, SeccompCmpOp::Eq, libc::PR_SET_DUMPABLE.cast_unsigned().into())?;
    rules.insert(libc::SYS_prctl, vec![hiding]);
    let controls = controls
        .into_iter()
        .map(|control| rule(1, SeccompCmpOp::Eq, control.cast_unsigned().into()));
    rules.insert(libc::SYS_fcntl, controls.collect::<Result<_, _>>()?);
    if !held.files {
        let none_of = REQUESTS
            .into_iter()
            .map(|request| {
                SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, request)
            })
            .collect::<Result<_, _>>()?;
        rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(none_of)?]);
    }
    if !held.files && !held.truncation {
        // Opened for reading, and emptied on the way.
        rules.insert(libc::SYS_openat, emptying(2)?);
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_open, emptying(1)?);
    }
    Ok(rules)
}

fn emptying(flags: u8) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mask = libc::O_TRUNC | libc::O_ACCMODE;
    [libc::O_RDONLY, libc::O_ACCMODE]
        .into_iter()
        .map(|access| bits(flags, mask, libc::O_TRUNC | access))
        .collect()
}

/// An argument of which these bits have this value.
fn bits(
    argument: u8,
    mask: libc::c_int,
    value: libc::c_int,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let mask = SeccompCmpOp::MaskedEq(mask.cast_unsigned().into());
    rule(argument, mask, value.cast_unsigned().into())
}

/// The kernel reads 32 bits of all the arguments that are looked at here.
fn rule(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let length = SeccompCmpArgLen::Dword;
    SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
}

/// Calls that are not there: all that are newer than this list, and `clone3`, whose flags are in memory,
/// where no filter can read them. Whoever calls that goes on with `clone`.
fn absent() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(FIRST_UNKNOWN);
    vec![
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_AT_LEAST, 1, 0, FIRST_UNKNOWN),
        instruction(JUMP_IF_EQUAL, 0, 1, clone3),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn bytes(program: &BpfProgram) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for instruction in program {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}
