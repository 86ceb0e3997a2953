package target

import (
	"context"
	"log/slog"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Messages use the same keys everywhere for what they are about: transport and remote for a connection; subsystem, host
// and cntlid for a controller; qid for a queue; cid, opcode and nsid for a command.

// identity returns a connection and what it is to NVMe, as attributes of a message.
func (q *Queue) identity(more ...any) []any {
	ids := []any{"transport", q.attr.Transport.String(), "remote", q.attr.Remote}
	if q.sq.Load() != 0 { // it was connected
		ids = append(ids, "subsystem", q.ctrl.sub.nqn, "host", q.ctrl.hostNQN, "cntlid", q.ctrl.id, "qid", q.qid)
	}
	return append(ids, more...)
}

// identity returns the attributes of a controller and its admin queue, whether or not that is connected.
func (c *controller) identity(more ...any) []any {
	return append([]any{"transport", c.attr.Transport.String(), "remote", c.attr.Remote,
		"subsystem", c.sub.nqn, "host", c.hostNQN, "cntlid", c.id}, more...)
}

// identity returns the attributes of a command and its queue.
func (r *Request) identity(more ...any) []any {
	q := r.engine.q
	ids := append(q.identity(), "cid", r.Cmd.CID(), "opcode", r.Cmd.Name(q.qid))
	if ns := r.engine.ns; ns != nil {
		ids = append(ids, "nsid", ns.nsid)
	}
	return append(ids, more...)
}

// logFailed logs, at debug level, a command that is answered with an error.
func (r *Request) logFailed(st nvme.Status) {
	log := r.engine.q.t.log
	if log.Enabled(context.Background(), slog.LevelDebug) {
		log.Debug("command failed", r.identity("status", st.String())...)
	}
}
