package main

import (
	"fmt"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
)

// everything is a configuration file that contains every setting.
const everything = `The file is YAML, in which relative paths count from where serve is started. This one
says everything that there is; only subsystems are needed:

  listen: [rdma://192.0.2.1:4420, tcp://192.0.2.1:4420]  # default: both on 127.0.0.1
  metrics: 127.0.0.1:9464               # metrics for Prometheus; default: none
  control: /run/nvmetgt/control         # socket for nvmetgt ctl; default: none
  state: /var/lib/nvmetgt               # directory for what outlives the program; default: none
  discovery:
    nqn: nqn.2026-11.org.example:discovery  # in addition to the well-known one
    referrals: [tcp://192.0.2.2:8009]   # other discovery services
  authentication:                       # DH-HMAC-CHAP of hosts; default: none
    secrets: /etc/nvmetgt/secrets       # lines of NQN SECRET [SECRET-OF-CONTROLLERS], mode 600
    hosts:                              # and other hosts, with files of their own
    - nqn: nqn.2026-11.org.example:host1
      secret_file: host1.key            # see nvmetgt gen-dhchap-key
      ctrl_secret_file: ctrl.key        # which controllers prove to have; default: they can't
    hashes: [sha512, sha384, sha256]    # that may be used, the preferred first
    dh_groups: [ffdhe3072, ffdhe4096, ffdhe6144, ffdhe8192, ffdhe2048, null]
    optional: false                     # true: hosts without a secret may connect, too
  pcap: packets.pcapng                  # every packet, for Wireshark; default: none
  log: {level: info, json: false}
  drain_timeout: 5s                     # for commands under way when it stops; 0: none
  network:
    in_capsule: 4KiB                    # data in a command capsule; 0: none
    queue_depth: 128
    dscp: 0                             # RDMA: DSCP of the packets, 0 to 63
    priority: 0                         # RDMA: priority of the packets, 1 to 6; 0: as dscp says
    plain_udp: false                    # RDMA without segmentation offload and coalescing
    no_local_icrc: false                # RDMA: no ICRC with our kind on this host, if both have this
    local_memory: false                 # RDMA: shared memory with our kind and user here, if both have this
    engines: 1                          # RDMA: RNICs at each address, 1 to 8, each for a processor
    busy_poll: 250us                    # longest time to look for packets before sleeping; 0: never
    fault: loss=1%                      # RDMA: faults to inject; default: none
  limits:
    connections: 1024                   # of all hosts; one is one queue
    host_connections: 256               # from one address
    half_open: 512                      # RDMA connections that hosts have yet to confirm, of an RNIC
    host_half_open: 256                 # of them, from one address
    controllers: 1024
    queues: 64                          # I/O queues of a controller
    memory: 256MiB                      # for data, each endpoint
    connect_timeout: 10s
  subsystems:
  - nqn: nqn.2026-11.org.example:disks
    serial: "0001"                      # default: derived from the nqn
    model: Example
    hosts: [nqn.2026-11.org.example:host1]  # who may connect; without this line every host
    max_controllers: 16
    create:                             # hosts may create, delete, attach and detach namespaces; default: not
      directory: /var/lib/nvmetgt/disks # of this subsystem alone; needs state
      capacity: 1TiB                    # of all that they create
      preallocate: false
    namespaces:
    - nsid: 1                           # default: the lowest that is free
      volume: disk.img                  # as --volume of serve
      size: 1GiB                        # of a file to create
      block_size: 4096
      read_only: false
      preallocate: false                # reserve the space of a file that is created
      io: auto                          # or uring, direct, buffered: how files are reached
      uuid: 6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6a001  # default: derived
      nguid: ef90689c6c46d44c89c14067801309a8  # default: none is reported
      eui64: "0025385b71b0f50a"         # likewise; quoted, for it may look like a number
      ana_group: 2                      # default: 1
  ana:                                  # states of ANA groups; default: optimized
  - {group: 2, state: non-optimized}    # or inaccessible, persistent-loss, change
  - {group: 2, state: optimized, listen: "tcp://192.0.2.1:4420"}`

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file",
		Long: `check reads a configuration file as "serve --config FILE" does, and says what is wrong
with it, with the line. It opens no volume and no file of secrets, and listens nowhere.

` + everything,
		Example: `  nvmetgt check /etc/nvmetgt.yaml && nvmetgt serve --config /etc/nvmetgt.yaml`,
		Args:    oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := loadConfig(c.Context(), "check", args[0])
			if err != nil {
				return err
			}
			n := 0
			for _, s := range cfg.Subsystems {
				n += len(s.Namespaces)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: good: %s with %s\n", args[0],
				english.Plural(len(cfg.Subsystems), "subsystem", ""), english.Plural(n, "namespace", ""))
			return nil
		},
	}
}

// oneFile requires the name of one file.
var oneFile = oneArg("the name of one file")
