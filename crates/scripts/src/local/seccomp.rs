//! The system calls that a script has no need of, as programs for the kernel.
//!
//! What is refused reaches beyond the script (sockets, other processes, mounts, namespaces), or is a
//! part of the kernel where holes were found before and no script is expected.

use std::collections::BTreeMap;

use libc::c_long;
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

/// Refused whatever they ask for.
const REFUSED: &[c_long] = &[
    // The network, and every other kind of socket. Pairs stay: event loops need them.
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Memory that the keeper could not count.
    libc::SYS_memfd_create,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    // Parts of the kernel that scripts have no business with.
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_lookup_dcookie,
];
/// Refused where nothing else keeps a script's signals to itself.
const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// The programs, each in the form that the kernel takes, in the order of their installation; none
/// where this architecture has no filter.
pub(super) fn programs(
    signals_are_kept_in: bool,
) -> Result<Vec<Vec<u8>>, seccompiler::BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    if !signals_are_kept_in {
        rules.extend(SIGNALS.iter().map(|&call| (call, Vec::new())));
    }
    let clone: Result<Vec<_>, _> = NAMESPACES
        .iter()
        .map(|&flag| {
            let flag = u64::from(flag.cast_unsigned());
            argument(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)
        })
        .collect();
    rules.insert(libc::SYS_clone, clone?);
    let unix = libc::AF_UNIX.cast_unsigned().into();
    rules.insert(
        libc::SYS_socketpair,
        vec![argument(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix)?],
    );
    // The limits of others; its own are lowered at most.
    let others = argument(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![others]);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let refused = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()?;
    Ok([absent(), refused].iter().map(bytes).collect())
}

fn argument(
    index: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, length, operator, value)?])
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
