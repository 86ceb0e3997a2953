package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// explain says in terms of the command line why a connection could not be made, and what to do. Other errors are
// returned unchanged.
func (f *connFlags) explain(err error) error {
	var e *host.ConnectError
	if !errors.As(err, &e) {
		return err
	}
	return cli.Say(err, "connect to %s://%s: %s", e.Transport, e.Peer, f.reason(e))
}

func (f *connFlags) reason(e *host.ConnectError) string {
	var reject *rdma.RejectError
	var status *nvme.StatusError
	switch {
	case errors.Is(e, unix.ECONNREFUSED):
		return "connection refused: nothing listens there; start a target, or check -a and -s"
	case errors.As(e, &reject) && reject.Reason == verbs.RejectInvalidServiceID:
		return fmt.Sprintf("connection refused: an RNIC answers, but nothing listens on its port %d; start a target, or check -s", e.Peer.Port())
	case errors.As(e, &reject) && reject.Status == rdma.RejectNoResources:
		return fmt.Sprintf("%v: it stops, is drained or has too many connections; try again, or end others", reject)
	case e.Stage == "connection" && errors.Is(e, rdma.ErrDisconnected):
		return "the peer disconnected; try again, and if that happens each time, check that packets as long as the MTU get through to this host"
	case errors.Is(e, unix.EADDRNOTAVAIL) && f.hostTraddr == "": // the system couldn't choose one
		return "this host has no address to reach it from, or no port left there; check `ip address`, and its other connections"
	case errors.Is(e, unix.EADDRNOTAVAIL):
		return fmt.Sprintf("-w %s is not an address of this host; use one that `ip address` shows", f.hostTraddr)
	case errors.Is(e, unix.EHOSTUNREACH), errors.Is(e, unix.ENETUNREACH):
		return "there is no route to it; check -a and the network"
	case errors.Is(e, host.ErrAuthentication):
		return f.unauthenticated(e)
	case errors.As(e, &status):
		return f.refusal(e, status)
	case e.Stage == "connection" && timedOut(e):
		return f.silence(e)
	}
	if errors.Is(e, tcp.ErrHandshake) {
		remedy := "check -a and -s"
		if errors.Is(e, tcp.ErrPeerClosed) || errors.Is(e, unix.ECONNRESET) { // because of data that it hadn't read yet
			remedy += ", or try again if it stops, is drained or has too many connections; it may also demand TLS, which isn't supported"
		}
		return fmt.Sprintf("it doesn't answer as an NVMe/TCP target does: %s; %s", offence(e), remedy)
	}
	stage, cause := e.Stage, e.Err
	var rdmaErr *rdma.ConnError
	var tcpErr *tcp.ConnError
	switch {
	case errors.As(e, &rdmaErr):
		stage, cause = rdmaErr.Stage, rdmaErr.Err
	case errors.As(e, &tcpErr):
		stage, cause = tcpErr.Stage, tcpErr.Err
	}
	if e.Stage == "authentication" { // Linux's target may disconnect before its AUTH_Failure1 is sent
		return fmt.Sprintf("authentication: %s; if that happens again, check the secrets", strings.TrimPrefix(cause.Error(), "nvme: "))
	}
	return fmt.Sprintf("%s: %s", stage, strings.TrimPrefix(cause.Error(), "nvme: "))
}

// refusal says why the target refused a command during set-up.
func (f *connFlags) refusal(e *host.ConnectError, status *nvme.StatusError) string {
	at := nvme.ConnectInvalid(status.Result)
	switch code := status.Status.Code(); {
	case code == nvme.StatusConnectInvalidParameter && at.InData() && at.Offset() == nvme.ConnectDataOffSUBNQN:
		return fmt.Sprintf("it has no subsystem %s; `nvmeinit discover -t %s -a %s -s %d` lists those that it has",
			e.SubNQN, e.Transport, e.Peer.Addr(), e.Peer.Port())
	case code == nvme.StatusConnectInvalidParameter && at.InData() && at.Offset() == nvme.ConnectDataOffCNTLID && e.QID == 0:
		return fmt.Sprintf("subsystem %s has static controllers, which aren't supported; configure its target to allocate them for hosts", e.SubNQN)
	case code == nvme.StatusConnectInvalidHost:
		return fmt.Sprintf("subsystem %s doesn't admit host %s; allow it there (nvmetgt serve --allow-host, and a secret in --dhchap-secrets if it has that), or come as another with -q",
			e.SubNQN, f.name)
	}
	return strings.TrimPrefix(status.Error(), "nvme: ")
}

// silence says what to check if nobody answers.
func (f *connFlags) silence(e *host.ConnectError) string {
	port := fmt.Sprintf("TCP port %d", e.Peer.Port())
	if e.Transport == nvme.TransportRDMA {
		port = fmt.Sprintf("UDP port %d", softrnic.Port)
	}
	within := ""
	if errors.Is(e, context.DeadlineExceeded) {
		within = fmt.Sprintf(" within %v", f.timeout)
	}
	return fmt.Sprintf("no answer%s; check that a target runs there, and that %s gets through to it", within, port)
}

// offence describes how a peer broke off the exchange of ICReq and ICResp.
func offence(err error) string {
	var protocol *tcp.ProtocolError
	var terminated *tcp.TerminatedError
	var errno unix.Errno
	switch {
	case errors.As(err, &protocol):
		return fmt.Sprintf("%v: %v", protocol.PDU, protocol.Cause)
	case errors.As(err, &terminated):
		return terminated.Error()
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, tcp.ErrPeerClosed):
		return tcp.ErrPeerClosed.Error()
	}
	return err.Error()
}

// timedOut reports whether err is due to a timeout.
func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// manyNamespaces is a number too large to list on one line.
const manyNamespaces = 16

// noNamespace says that the subsystem doesn't have the requested namespace, and which ones it has.
func noNamespace(ctx context.Context, s *host.Controller, nsid uint32, err error) error {
	ids, listErr := s.ActiveNamespaces(ctx)
	if listErr != nil {
		return err
	}
	if slices.Contains(ids, nsid) {
		return cli.Say(err, "--nsid %d: subsystem %s has the namespace, but with a size of 0; give its volume a size there", nsid, s.Config().SubNQN)
	}
	has := "it has none"
	switch n := len(ids); {
	case n > manyNamespaces:
		has = fmt.Sprintf("it has %d; nvmeinit list shows them", n)
	case n > 0:
		has = "it has " + strings.Trim(fmt.Sprint(ids), "[]")
	}
	return cli.Say(err, "--nsid %d: subsystem %s has no such namespace; %s", nsid, s.Config().SubNQN, has)
}
