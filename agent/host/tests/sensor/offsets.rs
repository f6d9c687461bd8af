//! The BTF reader against the running kernel. (That the offsets are right is proved by every start.)

use kams_host::btf::Btf;

#[test]
fn the_running_kernel_has_every_member_that_is_read() {
    let Ok(parsed) = Btf::of_running_kernel() else {
        println!("skipped: this kernel has no BTF");
        return;
    };
    let btf = parsed.expect("the kernel's BTF is valid");
    assert!(btf.len() > 10_000, "{} types", btf.len());
    let offsets = kams_host::offsets::resolve(&btf).expect("supported kernel");
    assert_eq!(offsets.resolved, 1);
    let task = btf.size_of("task_struct").expect("every kernel has tasks");
    assert!(offsets.task_tgid + 4 <= task && offsets.task_files + 8 <= task);
    // pid_t pid; pid_t tgid; in this order since 2.5.
    assert_eq!(
        btf.member_offset("task_struct", "pid"),
        Some(offsets.task_tgid - 4)
    );
    // Fixed by the system call interface, nested, and in a union.
    assert_eq!(btf.member_offset("iovec", "iov_len"), Some(8));
    assert_eq!(
        btf.member_offset("sock", "__sk_common.skc_family"),
        Some(offsets.sock_family)
    );
    assert_eq!(btf.member_offset("task_struct", "no_such_member"), None);
    assert_eq!(btf.member_offset("no_such_structure", "pid"), None);
    assert_eq!(btf.member_offset("task_struct", "pid.more"), None);
}
