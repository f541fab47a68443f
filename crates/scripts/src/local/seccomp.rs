//! A filter of system calls that scripts do not need, as BPF programs.
//!
//! The rejected calls reach beyond the script (sockets, other processes, mounts, namespaces), or belong
//! to parts of the kernel that had vulnerabilities and that no script is expected to use.

mod calls;

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// The first number that was unassigned in all kernels when this list was written. From 424 on, numbers
/// are the same on all architectures. Below the numbers of the x32 ABI.
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

/// The socket types whose pairs can't send to other sockets.
const PAIRS: [libc::c_int; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
/// The bits of a socket's type that are not flags.
const SOCKET_TYPES: u64 = 0xf;
const CLOSE_RANGE_UNSHARE: u64 = 2;
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
/// The requests of `ioctl` that are allowed where the machine's files are visible: none has a lasting
/// effect.
const REQUESTS: [u64; 7] = [
    0x5401,      // TCGETS
    0x802c_542a, // TCGETS2
    0x5413,      // TIOCGWINSZ
    0x541b,      // FIONREAD
    0x5421,      // FIONBIO
    0x5450,      // FIONCLEX
    0x5451,      // FIOCLEX
];

/// Protections by other mechanisms, which the filter need not repeat.
#[derive(Debug, Clone, Copy)]
pub(super) struct Covered {
    /// The machine's files are hidden behind a root of the script's own.
    pub(super) files: bool,
    /// Files can't be truncated where they are visible.
    pub(super) truncation: bool,
    /// Signals only reach the script's own processes.
    pub(super) signals: bool,
}

/// Returns the BPF programs in the order of their installation, as the kernel reads them. Fails on
/// architectures without a filter.
pub(super) fn programs(covered: Covered) -> Result<Vec<Vec<u8>>, seccompiler::BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let reject = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let rules = rules(covered)?;
    let rejected_calls =
        SeccompFilter::new(rules, SeccompAction::Allow, reject, arch)?.try_into()?;
    Ok([missing_calls(), rejected_calls].iter().map(bytes).collect())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(covered: Covered) -> Result<Rules, seccompiler::BackendError> {
    let mut calls = vec![calls::REJECTED, calls::REJECTED_HERE];
    // Rejected commands of `fcntl`: larger pipes, and notifications of what others do with a file.
    let mut controls = vec![libc::F_SETPIPE_SZ, libc::F_SETLEASE, libc::F_NOTIFY];
    if !covered.signals {
        calls.push(calls::SIGNALS);
        controls.extend([libc::F_SETOWN, F_SETOWN_EX, F_SETSIG]);
    }
    if !covered.files {
        calls.extend([calls::ATTRIBUTES, calls::ATTRIBUTES_HERE]);
    }
    if !covered.files && !covered.truncation {
        calls.push(calls::TRUNCATION);
    }
    let mut rules: Rules = calls.into_iter().flatten().map(|&call| (call, Vec::new())).collect();

    // Namespaces; and threads with file tables of their own, which the supervisor can't see.
    let namespaces = NAMESPACES.into_iter().map(|flag| masked_rule(0, flag, flag));
    let files_apart = masked_rule(0, libc::CLONE_THREAD | libc::CLONE_FILES, libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, namespaces.chain([files_apart]).collect::<Result<_, _>>()?);
    let unshare = rule(2, SeccompCmpOp::MaskedEq(CLOSE_RANGE_UNSHARE), CLOSE_RANGE_UNSHARE)?;
    rules.insert(libc::SYS_close_range, vec![unshare]);

    let unix = rule(0, SeccompCmpOp::Ne, libc::AF_UNIX.cast_unsigned().into());
    let others = (0..=SOCKET_TYPES)
        .filter(|kind| PAIRS.iter().all(|pair| u64::from(pair.cast_unsigned()) != *kind))
        .map(|kind| rule(1, SeccompCmpOp::MaskedEq(SOCKET_TYPES), kind));
    rules.insert(libc::SYS_socketpair, others.chain([unix]).collect::<Result<_, _>>()?);

    // Shared memory without a file, whose pages outlive their mappings, and the machine's huge pages:
    // neither is in a process's resident size.
    let anonymous = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let mappings = [anonymous, libc::MAP_HUGETLB].map(|flags| masked_rule(3, flags, flags));
    rules.insert(libc::SYS_mmap, mappings.into_iter().collect::<Result<_, _>>()?);

    // The limits of other processes; a script's own can only be lowered.
    rules.insert(libc::SYS_prlimit64, vec![rule(0, SeccompCmpOp::Ne, 0)?]);
    // Otherwise the supervisor could not count a process's open files.
    let dumpable = rule(0, SeccompCmpOp::Eq, libc::PR_SET_DUMPABLE.cast_unsigned().into())?;
    rules.insert(libc::SYS_prctl, vec![dumpable]);
    let controls = controls
        .into_iter()
        .map(|control| rule(1, SeccompCmpOp::Eq, control.cast_unsigned().into()));
    rules.insert(libc::SYS_fcntl, controls.collect::<Result<_, _>>()?);
    if !covered.files {
        let not_allowed = REQUESTS
            .into_iter()
            .map(|request| {
                SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, request)
            })
            .collect::<Result<_, _>>()?;
        rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(not_allowed)?]);
    }
    if !covered.files && !covered.truncation {
        // Opening for reading can truncate a file, too.
        rules.insert(libc::SYS_openat, truncating_open(2)?);
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_open, truncating_open(1)?);
    }
    Ok(rules)
}

fn truncating_open(flags: u8) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mask = libc::O_TRUNC | libc::O_ACCMODE;
    [libc::O_RDONLY, libc::O_ACCMODE]
        .into_iter()
        .map(|access| masked_rule(flags, mask, libc::O_TRUNC | access))
        .collect()
}

/// Matches an argument whose masked bits have this value.
fn masked_rule(
    argument: u8,
    mask: libc::c_int,
    value: libc::c_int,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let mask = SeccompCmpOp::MaskedEq(mask.cast_unsigned().into());
    rule(argument, mask, value.cast_unsigned().into())
}

/// Matches the lower 32 bits of an argument: the kernel ignores the others of these calls.
fn rule(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let length = SeccompCmpArgLen::Dword;
    SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
}

/// Returns a program that reports calls as missing: all that are newer than this list, and `clone3`, whose
/// flags are in memory, where no filter can read them. Callers of `clone3` fall back to `clone`.
fn missing_calls() -> BpfProgram {
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
