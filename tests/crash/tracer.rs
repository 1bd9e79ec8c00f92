//! Ends a run at one of its calls, by a signal that arrives before the call does anything.
//!
//! `strace --inject` does the same; but it stops each program that the run starts at some 130 calls
//! more, which takes longer than all the rest of a cut. This one follows the threads of the run alone.
//!
//! **Invariant:** the call at which a run is cut is one that strace would have counted as this one.

#[cfg(target_arch = "x86_64")]
pub use here::cut_off;

#[cfg(target_arch = "x86_64")]
mod here {
    use crate::cut::{Cut, Loss};
    use nix::sys::ptrace::{self, Options};
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::{Read as _, Seek as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, ExitStatus, Output};

    /// The number of a call on this machine (`asm/unistd_64.h`).
    fn number(call: &str) -> Option<u64> {
        Some(match call {
            "write" => 1,
            "writev" => 20,
            "clone" => 56,
            "vfork" => 58,
            "wait4" => 61,
            "fsync" => 74,
            "fdatasync" => 75,
            "ftruncate" => 77,
            "rename" => 82,
            "mkdir" => 83,
            "link" => 86,
            "unlink" => 87,
            "waitid" => 247,
            "mkdirat" => 258,
            "unlinkat" => 263,
            "renameat" => 264,
            "linkat" => 265,
            "renameat2" => 316,
            "clone3" => 435,
            _ => return None,
        })
    }

    /// Runs a command as a child of this thread, which has no other, and cuts it off.
    pub fn cut_off(command: &Command, cut: &Cut) -> Output {
        let number = number(cut.call).expect("it is one of the calls at which runs are cut");
        let [mut out, mut err] =
            [(); 2].map(|()| tempfile::tempfile_in("/dev/shm").expect("a file"));
        // It waits until it is watched.
        let mut held = Command::new("/bin/sh");
        held.args(["-c", "kill -STOP $$; exec \"$@\"", "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear()
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(std::process::Stdio::null())
            .stdout(out.try_clone().expect("a file"))
            .stderr(err.try_clone().expect("a file"));
        // Whoever watches all waits for it, too.
        #[expect(clippy::zombie_processes, reason = "it is waited for by its number")]
        let child = held.spawn().expect("it starts");
        let first = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        waitpid(first, Some(WaitPidFlag::WUNTRACED)).expect("it stops");
        // Threads are followed, other children are not.
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC;
        ptrace::seize(first, options).expect("it can be watched");
        kill(first, Signal::SIGCONT).expect("it lives");
        let status = watch(first, number, cut);
        let mut said = [Vec::new(), Vec::new()];
        for (file, said) in [&mut out, &mut err].into_iter().zip(&mut said) {
            file.rewind().expect("a file");
            file.read_to_end(said).expect("a file");
        }
        let [stdout, stderr] = said;
        Output { status, stdout, stderr }
    }

    /// Follows all threads to their end.
    fn watch(first: Pid, number: u64, cut: &Cut) -> ExitStatus {
        let mut counts: BTreeMap<Pid, usize> = BTreeMap::new();
        let mut inside: BTreeSet<Pid> = BTreeSet::new();
        let (mut is_program, mut is_cut) = (false, false);
        let mut status = None;
        let any = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        while let Ok(seen) = waitpid(None, Some(any)) {
            // One that was killed meanwhile cannot be told to go on.
            let go_on = |pid: Pid, signal: Option<Signal>| {
                let _gone =
                    if is_cut { ptrace::cont(pid, signal) } else { ptrace::syscall(pid, signal) };
            };
            match seen {
                WaitStatus::Exited(pid, code) if pid == first => {
                    status = Some(ExitStatus::from_raw(code << 8));
                }
                WaitStatus::Signaled(pid, signal, _) if pid == first => {
                    status = Some(ExitStatus::from_raw(signal as i32));
                }
                WaitStatus::PtraceEvent(pid, _, event) => {
                    if event == nix::libc::PTRACE_EVENT_EXEC {
                        is_program = true;
                    }
                    go_on(pid, None);
                }
                WaitStatus::PtraceSyscall(pid) => {
                    let begins = inside.insert(pid);
                    if !begins {
                        inside.remove(&pid);
                    }
                    let counted = begins
                        && is_program
                        && !is_cut
                        && ptrace::getregs(pid).is_ok_and(|regs| regs.orig_rax == number);
                    let count = counts.entry(pid).or_default();
                    *count += usize::from(counted);
                    if counted && *count == cut.nth {
                        is_cut = true;
                        if cut.loss == Loss::Stop {
                            let _gone = ptrace::cont(pid, Signal::SIGTERM);
                        } else {
                            kill(first, Signal::SIGKILL).expect("it lives");
                        }
                    } else {
                        go_on(pid, None);
                    }
                }
                WaitStatus::Stopped(pid, signal) => go_on(pid, Some(signal)),
                WaitStatus::Exited(..)
                | WaitStatus::Signaled(..)
                | WaitStatus::Continued(_)
                | WaitStatus::StillAlive => {}
            }
        }
        status.expect("the run has ended")
    }
}
