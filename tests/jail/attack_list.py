"""What every backend must withstand, item by item, and the cases that try it.

A case is the name of an attack (tests/jail/attacks), or `file::test`, or `file::test[parameter]`.
"""

# ruff: noqa: E501 - names of tests are long

from __future__ import annotations

_BOMBS, _NAMES, _CLOSED = "test_jail_bombs.py::test_bomb", "test_jail_names.py::test_name", "test_jail_closed.py"

SECRETS = {
    "keys for ssh": "read_ssh_key list_home",
    "passwords for hosts in ~/.netrc": "read_netrc",
    "tokens of clouds and of gh": "read_cloud_credentials read_gh_token",
    "profiles of browsers, histories of shells": "read_browser_profile read_shell_history",
    "homes of others": "read_other_home",
    "/etc/shadow": "read_shadow",
    "by `..` and by an absolute path": "read_by_dots read_netrc test_jail_attack_tools.py::test_reading",
    "by a link that stands in the workspace": "read_by_standing_link_to_file read_by_standing_link_to_folder",
    "by a link that is made": "read_by_new_link",
    "/proc/self/root": "read_by_root_of_self",
    "the environment of PID 1": "read_environ_of_parent",
    "root and folder of PID 1": "read_through_root_of_parent read_cwd_of_parent",
    "descriptors and memory of PID 1": (
        "open_descriptors_of_parent open_memory_of_parent read_memory_map_of_parent"
        " test_jail_start.py::test_the_runner_has_nothing_of_the_launcher"
    ),
    "environment, command line and folder of a host process": (
        "see_environ_of_host_process see_command_line_of_host_process see_folder_of_host_process"
        " find_host_process_by_name"
    ),
    "tokens in the environment": "see_token_of_environment",
    "descriptors that are inherited": "use_inherited_descriptor",
    "keyrings": "add_a_key open_session_keyring request_a_key",
    "files by their handles": "name_to_handle open_by_handle",
    "ptrace": "trace_another_process",
    "memory of another process": "read_memory_of_another_process",
    "descriptors of another process": "take_descriptor_of_another_process",
    "the command line of PID 1": "see_how_the_launcher_was_started",
    "a mount table that tells host paths": "find_host_paths_in_mount_table",
}

OUTSIDE = {
    "create": "create_in_host_folder make_folder_in_host_folder",
    "append and truncate": "append_to_host_file truncate_host_file",
    "rename and remove": "rename_host_file remove_host_file",
    "change mode, owner, time, attributes": (
        "change_mode_of_host_file change_owner_of_host_file change_time_of_host_file set_attribute_of_host_file"
    ),
    "through a link to a file": "append_by_link_to_file change_mode_by_link_to_file",
    "through a link to a folder": "create_by_link_to_folder",
    "by Bash": "append_by_shell replace_by_shell",
    "by Write and Edit": "test_jail_attack_tools.py::test_writing",
    "hard links in and out": "hard_link_host_file_in hard_link_out hard_link_of_the_workspace_leads_out",
    "the system's own files": (
        "write_to_usr change_mode_in_usr plant_a_module_in_own_library make_folder_in_root write_to_etc"
    ),
    "mount": "mount_memory bind_a_folder",
    "umount": "unmount",
    "the newer mount calls": ("open_a_file_system clone_a_mount_tree move_a_mount change_attributes_of_a_mount"),
    "remount": "remount_writable",
    "pivot_root and chroot": "pivot_root change_root",
    "device nodes": (
        "change_mode_of_dev_null change_time_of_dev_null replace_dev_null make_a_character_device"
        " make_a_block_device open_a_disk"
    ),
    "what only the overlay may write": "make_a_whiteout forge_an_overlay_attribute",
    "a race of a link and a folder": ("test_tools_races.py::test_no_race_leads_outside"),
}

PRIVILEGE = {
    "nested namespaces": (
        "nested_user_namespace nested_mount_namespace nested_namespace_by_clone nested_namespace_by_clone3"
        " join_a_namespace"
    ),
    "setuid programs": "gain_by_setuid_program become_another_user join_a_group",
    "capabilities of files and of itself": "give_a_file_capabilities raise_own_capabilities",
    "maps of identities": "map_identities",
    "oom_score_adj": "protect_itself_from_the_memory_killer",
    "core_pattern and other settings": (
        "name_a_program_for_core_dumps press_a_kernel_key change_a_limit_of_the_kernel"
    ),
    "device nodes by mknod": "make_a_character_device make_a_block_device",
    "the kernel's log": "read_kernel_log_device read_kernel_log",
    "/sys and files of control groups": "see_devices_of_the_machine see_control_groups read_addresses_of_the_kernel",
    "bpf and perf": "load_a_bpf_program measure_with_perf",
    "io_uring and userfaultfd": "use_io_uring use_userfaultfd",
    "kexec, modules, restart, swap": (
        "load_another_kernel load_a_module remove_a_module stop_the_machine swap_to_a_file account_to_a_file"
    ),
    "clock and host name": "set_the_clock slew_the_clock set_the_host_name",
    "calls by other tables and unknown numbers": (
        "call_a_number_that_is_not_known call_by_the_x32_table call_by_the_32_bit_gate"
    ),
    "terminals": "type_into_a_terminal paste_into_a_console",
    "other processes": (
        "signal_a_host_process limit_a_host_process kill_the_first_process_of_the_jail watch_the_file_system"
    ),
    "memory out of sight or executable": "hide_memory_from_the_kernel make_all_data_executable",
}

NETWORK = {
    "TCP to the host's loopback: v4, v6, 0.0.0.0, mapped": (
        "reach_tcp_on_loopback reach_tcp_on_loopback_6 reach_tcp_on_any_address reach_tcp_on_mapped_address"
        " see_interfaces_of_the_machine"
    ),
    "UDP to the host's loopback": "reach_udp_on_loopback reach_udp_on_loopback_6",
    "TCP and UDP to the outside": (
        "reach_tcp_outside reach_tcp_outside_6 reach_udp_outside reach_the_metadata_service"
    ),
    "names": "resolve_a_name",
    "raw and packet sockets": "open_a_raw_socket open_a_packet_socket load_a_rare_protocol open_a_bluetooth_socket",
    "vsock": "open_a_socket_to_the_hypervisor",
    "netlink": "listen_to_device_events listen_to_the_audit talk_to_kernel_families",
    "AF_ALG": "open_a_socket_to_kernel_ciphers",
    "abstract unix sockets": "reach_abstract_socket",
    "unix sockets with a path": (
        "reach_socket_in_workspace reach_socket_in_shown_folder"
        " test_jail_ground.py::test_a_bound_folder_with_a_socket_is_refused"
    ),
    "pipes and locks of files that are shown": "write_to_pipe_in_shown_folder meet_a_lock_of_the_host",
    "ssh-agent": "reach_ssh_agent find_sockets_by_variables",
    "D-Bus": "reach_desktop_bus",
    "docker and podman": "reach_docker reach_podman",
    "X11 and Wayland": "reach_x11 reach_wayland",
    "editors": "reach_editor",
    "IPC of System V": ("attach_shared_memory_of_the_host take_semaphore_of_the_host read_message_queue_of_the_host"),
    "IPC of POSIX": "map_posix_memory_of_the_host open_posix_queue_of_the_host",
    "its own loopback, sockets, ptys, semaphores work": (
        "test_jail_tools.py::test_developer_tools_work[server] test_jail_tools.py::test_developer_tools_work[unix-socket]"
        " test_jail_tools.py::test_developer_tools_work[pty] test_jail_tools.py::test_developer_tools_work[semaphore]"
    ),
}

RESOURCES = {
    "bombs of processes, threads, zombies": f"{_BOMBS}[processes] {_BOMBS}[threads] {_BOMBS}[zombies]",
    "memory in one block": f"{_BOMBS}[one-block]",
    "memory in many children": f"{_BOMBS}[many-children] test_jail_session.py::test_memory_is_bounded_and_the_run_goes_on",
    "memory in /dev/shm and without a name": f"{_BOMBS}[shared-memory] {_BOMBS}[memory-without-a-name]",
    "memory that System V keeps": f"{_BOMBS}[semaphores] {_BOMBS}[queues]",
    "a disk filled where no tree shows it": (
        "test_jail_watch.py::test_a_tree_that_is_nested_out_of_sight_is_too_large"
        " test_jail_watch.py::test_what_is_open_and_removed_touches_the_reserve"
        " test_jail_watch.py::test_a_deep_copy_is_ended_and_removed"
    ),
    "a full disk": f"{_BOMBS}[full-view] {_BOMBS}[full-scratch] test_jail_session.py::test_a_view_on_disk_is_bounded",
    "sparse files": f"{_BOMBS}[sparse-file]",
    "a million empty files": f"{_BOMBS}[empty-files]",
    "100 MB of output": f"{_BOMBS}[much-output] test_jail_session.py::test_a_flood_on_stderr_blocks_nothing",
    "one endless line": f"{_BOMBS}[endless-line] test_tools_bash.py::test_a_flood_is_counted_and_not_kept",
    "sleep for ever": f"{_BOMBS}[sleep]",
    "SIGTERM ignored": f"{_BOMBS}[deaf-sleep]",
    "setsid, nohup, a double fork": f"{_BOMBS}_of_daemons",
    "a background child that holds stdout": f"{_BOMBS}_that_holds_stdout",
    "SIGSTOP and SIGKILL at the runner": (
        "test_jail_session.py::test_a_runner_that_its_own_command_ends[KILL]"
        " test_jail_session.py::test_a_runner_that_its_own_command_ends[STOP]"
    ),
    "a runner that reads nothing": "test_ipc_peer.py::test_a_child_that_never_reads_does_not_hold_up_the_end",
    "the runner killed in the middle of a call": "test_jail_canaries.py::test_any_process_of_the_jail_may_be_killed",
}

NAMES = {
    "newline": f"{_NAMES}[newline]",
    "ESC": f"{_NAMES}[escape]",
    "leading dash": f"{_NAMES}[dash]",
    "override of direction": f"{_NAMES}[direction]",
    "255 bytes": f"{_NAMES}[255-bytes]",
    "nested past PATH_MAX": f"{_NAMES}[past-path-max]",
    "not UTF-8": f"{_NAMES}[not-utf-8]",
    "twins that differ in case": f"{_NAMES}[case-twins]",
    "FIFOs, sockets, devices": f"{_NAMES}[fifo] {_NAMES}[socket] make_a_character_device",
    "mode 000": f"{_NAMES}[mode-000-file] {_NAMES}[mode-000-folder]",
    "file, folder and link in each other's place": (
        f"{_NAMES}[file-to-folder] {_NAMES}[folder-to-file] {_NAMES}[folder-to-link] {_NAMES}[file-to-link]"
    ),
    "a file that changes while it is collected": "test_jail_names.py::test_nothing_lives_while_changes_are_collected",
    "files of 5 GB": f"{_NAMES}[5-gigabytes]",
}

CLOSED = {
    "each missing piece": f"{_CLOSED}::test_a_missing_call_means_that_nothing_runs {_CLOSED}::test_a_quota_of_zero_means_that_nothing_runs",
    "a planted bwrap first on PATH": f"{_CLOSED}::test_a_planted_bwrap_and_python_are_not_run",
    "LD_PRELOAD in the server's environment": f"{_CLOSED}::test_a_hostile_variable_of_the_server[LD_PRELOAD]",
    "PYTHONPATH": f"{_CLOSED}::test_a_hostile_variable_of_the_server[PYTHONPATH]",
    "BASH_ENV": f"{_CLOSED}::test_a_hostile_variable_of_the_server[BASH_ENV]",
    "GIT_*": f"{_CLOSED}::test_a_hostile_variable_of_the_server[GIT_CONFIG]",
    "a quota that is met after a good probe": f"{_CLOSED}::test_a_quota_that_is_met_after_a_good_probe",
    "a command that speaks and ends like the launcher": (
        "test_jail_command.py::test_a_command_that_speaks_like_the_launcher_is_only_a_command"
    ),
}

GROUPS = {
    "secrets": SECRETS,
    "outside": OUTSIDE,
    "privilege": PRIVILEGE,
    "network": NETWORK,
    "resources": RESOURCES,
    "names": NAMES,
    "closed": CLOSED,
}
