//! The rejected system calls, by their effect.

use libc::c_long;

/// Missing in the headers of some architectures; the same number on all.
const SYS_FCHMODAT2: c_long = 452;

/// Rejected with any arguments.
pub(super) const REJECTED: &[c_long] = &[
    // The network and all other kinds of sockets. Socket pairs are allowed: event loops need them.
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    // Larger socket buffers, which are kernel memory that the supervisor can't count.
    libc::SYS_setsockopt,
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
    // Memory that the supervisor can't count: files without a name, pages that a pipe or a socket refers
    // to after the process has unmapped them, and Landlock's rules.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_vmsplice,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_sendfile,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    // Objects that programs share by a machine-wide number, name or limit.
    libc::SYS_io_setup,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Parts of the kernel that scripts do not need.
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
/// Rejected with any arguments, on this architecture only.
#[cfg(target_arch = "x86_64")]
pub(super) const REJECTED_HERE: &[c_long] = &[libc::SYS_inotify_init, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const REJECTED_HERE: &[c_long] = &[];

/// Rejected where no other mechanism confines a script's signals.
pub(super) const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// Rejected where the machine's files are visible: these change attributes, which Landlock does not
/// control. Also those that take a descriptor, since read-only files can be opened.
pub(super) const ATTRIBUTES: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// Rejected where the machine's files are visible, on this architecture only.
#[cfg(target_arch = "x86_64")]
pub(super) const ATTRIBUTES_HERE: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const ATTRIBUTES_HERE: &[c_long] = &[];

/// Rejected where Landlock does not control truncation; `openat2` has its flags in memory.
pub(super) const TRUNCATION: &[c_long] = &[libc::SYS_truncate, libc::SYS_openat2];
