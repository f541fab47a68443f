//! Scripts that use memory where the resident size of their processes does not show it.
//!
//! Each attack holds at most 1.3 GiB and ends by itself, so a machine survives one that succeeds.

use rockbot_scripts::{ScriptLimit, local::LocalOptions};

use crate::fixture::{INTERPRETERS, output_of, plain, run, runner};

/// Calls of the C library, and the attempts that `refused` prints the end of.
const PRELUDE: &str = r"
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
SHARED, PRIVATE, ANONYMOUS, MIB = 1, 2, 0x20, 1 << 20

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result in (-1, ctypes.c_size_t(-1).value):
        raise OSError(ctypes.get_errno(), name)
    return result

def refused(attempt):
    try:
        attempt()
        print('out')
    except OSError as error:
        print(type(error).__name__)
";

/// Pages that no process has mapped stay with the rest of their mapping.
const SHARED_MAPPINGS: &str = r"
def hold(flags, file):
    for _ in range(12):
        block = call('mmap', None, 64 * MIB, 3, flags, file, 0)
        ctypes.memset(block, 1, 64 * MIB)
        call('munmap', block + mmap.PAGESIZE, 64 * MIB - mmap.PAGESIZE)

refused(lambda: hold(SHARED | ANONYMOUS, -1))
refused(lambda: hold(SHARED, os.open('/dev/zero', os.O_RDWR)))
refused(lambda: call('mmap', None, 2 * MIB, 3, PRIVATE | ANONYMOUS | 0x40000, -1, 0))
";

/// A pipe refers to a page of each huge page, which keeps all of it after it was unmapped.
const PINNED_PAGES: &str = r"
class Part(ctypes.Structure):
    _fields_ = [('address', ctypes.c_void_p), ('length', ctypes.c_size_t)]

def pin():
    for _ in range(20):
        reader, writer = os.pipe()
        block = call('mmap', None, 34 * MIB, 3, PRIVATE | ANONYMOUS, -1, 0)
        libc.madvise(ctypes.c_void_p(block), ctypes.c_size_t(34 * MIB), 14)
        first = -(-block // (2 * MIB)) * 2 * MIB
        for huge in range(first, first + 32 * MIB, 2 * MIB):
            ctypes.memset(huge, 1, 1)
            part = Part(huge, mmap.PAGESIZE)
            call('vmsplice', writer, ctypes.byref(part), ctypes.c_size_t(1), 1)
        call('munmap', block, 34 * MIB)

reader, writer = os.pipe()
other = os.pipe()[1]
with open('file', 'wb') as file:
    file.write(b'x' * mmap.PAGESIZE)
file = os.open('file', os.O_RDONLY)
os.write(writer, b'x')
refused(pin)
refused(lambda: os.sendfile(writer, file, 0, 9))
refused(lambda: call('splice', file, None, writer, None, ctypes.c_size_t(9), 1))
refused(lambda: call('tee', reader, other, ctypes.c_size_t(1), 1))
refused(lambda: call('syscall', 444, None, ctypes.c_size_t(0), 1))
";

/// Page tables for pages that share the one page of zeros: 320 MiB in each of two processes.
const PAGE_TABLES: &str = r"
os.fork()
for number in range(40000):
    page = call('mmap', (1 << 40) + (number << 30), mmap.PAGESIZE, 1, PRIVATE | ANONYMOUS, -1, 0)
    ctypes.c_char.from_address(page).value
__import__('signal').pause()
";

/// Threads that hold memory after the first thread of their process has ended.
const ENDED_THREADS: &str = r"
import threading
for _ in range(3):
    if os.fork() == 0: break
first = os.getpid()

def hold():
    while 'Z' not in open(f'/proc/{first}/task/{first}/stat').read().rsplit(')', 1)[1]:
        pass
    held = bytearray(b'x') * (300 * MIB)
    __import__('signal').pause()

threading.Thread(target=hold).start()
libc.syscall({'x86_64': 60}.get(os.uname().machine, 93), 0)
";

fn attack(code: &str) -> String {
    format!("{PRELUDE}{code}")
}

#[tokio::test]
async fn shared_memory_without_file_is_refused() {
    for warm in INTERPRETERS {
        let output = output_of(&plain(warm).await, &attack(SHARED_MAPPINGS)).await;
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines, ["PermissionError", "FileNotFoundError", "PermissionError"]);
    }
}

#[tokio::test]
async fn pages_cannot_be_pinned_in_pipes() {
    for warm in INTERPRETERS {
        let output = output_of(&plain(warm).await, &attack(PINNED_PAGES)).await;
        assert_eq!(output, "PermissionError\n".repeat(5));
    }
}

#[tokio::test]
async fn page_tables_count_as_memory() {
    for warm in INTERPRETERS {
        let outcome = run(&plain(warm).await, &attack(PAGE_TABLES)).await;
        assert_eq!(outcome.ended_by, Some(ScriptLimit::Memory), "{outcome:?}");
    }
}

#[tokio::test]
async fn memory_counts_after_first_thread_ended() {
    for warm in INTERPRETERS {
        let outcome = run(&plain(warm).await, &attack(ENDED_THREADS)).await;
        assert_eq!(outcome.ended_by, Some(ScriptLimit::Memory), "{outcome:?}");
    }
}

#[tokio::test]
async fn ordinary_sharing_and_copying_works() {
    let code = r"
import mmap, multiprocessing, os, shutil
from multiprocessing import shared_memory
fork = multiprocessing.get_context('fork')
count = fork.Value('i', 0)

def add():
    with count.get_lock():
        count.value += 1

adders = [fork.Process(target=add) for _ in range(4)]
for process in adders: process.start()
for process in adders: process.join()
with fork.Pool(2) as pool:
    print(count.value, sum(pool.map(abs, range(10))))
memory = shared_memory.SharedMemory(create=True, size=4096)
memory.buf[0] = 7
print(memory.buf[0])
memory.close()
memory.unlink()
with open('one', 'w') as file: file.write('x' * 10000)
shutil.copyfile('one', 'other')
print(os.path.getsize('other'))
print(len(mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)))
";
    for warm in INTERPRETERS {
        assert_eq!(output_of(&plain(warm).await, code).await, "4 45\n7\n10000\n4096\n");
    }
}

#[tokio::test]
async fn unlimited_memory_is_reported() {
    let isolation = plain(true).await.isolation().to_string();
    assert!(isolation.ends_with("kernel memory is not limited"), "{isolation}");
    let mut options = LocalOptions::default();
    options.mechanisms.seccomp = false;
    let isolation = runner(options).await.isolation().to_string();
    assert!(isolation.contains("memory beyond the limit"), "{isolation}");
}
