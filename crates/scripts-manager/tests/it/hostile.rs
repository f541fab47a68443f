//! Hostile scripts.

use std::time::{Duration, Instant};

use rockbot_contracts::{ToolCallId, ToolErrorCode};
use rockbot_scripts::{Requirements, ScriptLimit, ScriptRunner};
use rockbot_tools::ToolContext;

use crate::fixture::{call, in_cluster, run, script};

#[tokio::test]
async fn script_sees_nothing_of_host_cluster_or_fleet() {
    in_cluster(async |cluster| {
        let runner = cluster.runner();
        let code = "
import glob, os
def tried(path):
    try: return open(path, 'rb').read()
    except OSError as error: return b''
seen = tried('/proc/1/environ') + b' '.join(tried(path) for path in glob.glob('/proc/*/environ'))
print('secrets', any(word in seen.lower() for word in (b'amqp', b'password', b'token', b'secret')))
print('token', os.path.exists('/var/run/secrets/kubernetes.io') or os.path.exists('/run/secrets/kubernetes.io'))
print('cluster', any(name.startswith('KUBERNETES') for name in os.environ))
print('user', os.getuid() >= 1000000000, os.getgid() >= 1000000000)
print('capabilities', [line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')])
print('privileges', [line.split()[1] for line in open('/proc/self/status') if line.startswith(('NoNewPrivs', 'Seccomp:'))])
print('processes', sorted(int(name) for name in os.listdir('/proc') if name.isdigit())[0], len([n for n in os.listdir('/proc') if n.isdigit()]) < 6)
print('place', os.getcwd(), os.environ['HOME'])
def writes(folder):
    try: open(folder + '/x', 'w').close(); return True
    except OSError: return False
print('writes', [folder for folder in ('/', '/etc', '/usr', '/var/tmp', '/rockbot', '/root', '/home', '/tmp') if writes(folder)])
os.symlink('/rockbot/script.py', '/tmp/link')
try: open('/tmp/link', 'a'); print('link')
except OSError: print('no link')
print('shadow', bool(tried('/etc/shadow')), 'docker', os.path.exists('/var/run/docker.sock'), 'containerd', os.path.exists('/run/containerd'))
try:
    import socket; socket.getaddrinfo('kubernetes.default.svc', 443); print('names')
except OSError: print('no names')
";
        let outcome = run(&runner, code).await.unwrap();
        let none = "0000000000000000";
        let none = format!("['{none}', '{none}', '{none}', '{none}', '{none}']");
        let expected = format!(
            "secrets False\ntoken False\ncluster False\nuser True True\ncapabilities {none}\n\
             privileges ['1', '2']\nprocesses 1 True\nplace /tmp /tmp\nwrites ['/tmp']\nno link\n\
             shadow False docker False containerd False\nno names\n"
        );
        assert_eq!(outcome.stdout, expected, "{}", outcome.stderr);
        assert_eq!(outcome.exit_code, 0, "{}", outcome.stderr);
    })
    .await;
}

#[tokio::test]
async fn flooding_script_does_not_affect_others() {
    in_cluster(async |cluster| {
        let runner = &cluster.runner();
        let start = Instant::now();
        let fork = "
import os, time
made = 0
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
        made += 1
    except OSError:
        print(made < 200, flush=True)
        break
";
        // The wrapper kills all of its children when the script exits.
        let fork = async { run(runner, fork).await.unwrap() };
        let bomb = script("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass")
            .with_timeout(Duration::from_secs(3))
            .unwrap();
        let context = call();
        let bomb = runner.run(&bomb, &context);
        let flood = "
import os
line = b'x' * (1 << 20)
for _ in range(10 * 1024): os.write(1, line)
";
        let flood = async { run(runner, flood).await.unwrap() };
        let bystander = async { run(runner, "print(sum(range(10)))").await.unwrap() };
        let (fork, bomb, flood, bystander) = tokio::join!(fork, bomb, flood, bystander);
        assert_eq!(fork.stdout, "True\n", "{}", fork.stderr);
        let bomb = bomb.unwrap_err();
        assert_eq!(bomb.code(), ToolErrorCode::Timeout, "{bomb}");
        assert_eq!(flood.ended_by, Some(ScriptLimit::Output));
        assert_eq!(flood.stdout.len(), 3 * 1024 * 1024);
        assert_eq!(bystander.stdout, "45\n");
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn script_can_forge_only_its_own_result() {
    in_cluster(async |cluster| {
        let runner = &cluster.runner();
        let result_of = |code: &'static str| async move { run(runner, code).await };
        // Writes to the log and the termination message, bypassing the wrapper.
        let (log, message, bytes, killed) = tokio::join!(
            result_of("print('mine'); open('/proc/1/fd/1', 'w').write('forged\\n' * 10)"),
            result_of("import os; open('/dev/termination-log', 'w').write('exit 0 1 999999\\n'); os.kill(1, 15)"),
            result_of("import os; open('/dev/termination-log', 'wb').write(b'\\xff\\xfe' * 9999); os.kill(1, 15)"),
            result_of("import os; print('x', flush=True); os.kill(1, 9); os.kill(1, 15)"),
        );
        assert_eq!(log.unwrap().stdout, "mine\n");
        // The reported output is missing from the log.
        assert_eq!(message.unwrap_err().code(), ToolErrorCode::Unavailable);
        for forged in [bytes, killed] {
            assert_eq!(forged.unwrap().exit_code, 143);
        }
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn request_text_is_in_no_name() {
    in_cluster(async |cluster| {
        let runner = cluster.runner();
        assert!(ToolCallId::new("/😀".repeat(100)).is_err(), "an id of 500 bytes is invalid");
        let wild = "../é😀 \"$(id)`;/".repeat(12);
        let wild = wild.chars().scan(0, |bytes, c| {
            *bytes += c.len_utf8();
            (*bytes <= 255).then_some(c)
        });
        let wild: String = wild.collect();
        let context = ToolContext { tool_call_id: ToolCallId::new(wild).unwrap(), ..call() };
        let text =
            "print('''\n$(id) `id` $(ROCKBOT) \\u2028 \u{feff} {{x}} $$(HOME) 'quoted' ''' )";
        let outcome = runner.run(&script(text), &context).await.unwrap();
        assert_eq!(
            outcome.stdout,
            "\n$(id) `id` $(ROCKBOT) \u{2028} \u{feff} {{x}} $$(HOME) 'quoted' \n"
        );
        assert!(Requirements::parse(&["x; curl evil"]).is_err());
    })
    .await;
}

#[tokio::test]
async fn enforced_policy_blocks_network() {
    in_cluster(async |cluster| {
        let url: http::Uri = cluster.api_server.parse().unwrap();
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_u16().unwrap_or(443);
        let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await.unwrap().collect();
        // First without the policy: otherwise an unreachable network would prove nothing.
        cluster.delete_policy().await;
        let reached = cluster.runner().probe_network(&addresses).await.unwrap();
        cluster.restore_policy().await;
        let runner = cluster.runner();
        let reached_with_policy = runner.probe_network(&addresses).await.unwrap();
        let is_enforced = cluster.enforces_policies();
        println!(
            "addresses reached without the policy: {reached}, with it: {reached_with_policy}; cluster \
             declared to enforce policies: {is_enforced}"
        );
        cluster.assert_policy_is_closed().await;
        // Later results report the gap.
        assert_eq!(runner.isolation().is_complete(), reached_with_policy == 0);
        if is_enforced {
            assert!(reached > 0, "the script reached nothing without the policy");
            assert_eq!(reached_with_policy, 0, "the policy is not enforced");
        }
    })
    .await;
}
