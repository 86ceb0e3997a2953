package roce

import "sync/atomic"

// Counter identifies one of the device's counters. They have the names of Linux's RDMA hardware counters if there is a
// corresponding one.
type Counter uint8

// Counters of a device.
const (
	SentPackets Counter = iota
	SentBytes
	ReceivedPackets
	ReceivedBytes
	Retransmitted
	Malformed
	BadICRC
	RecoveredICRC
	NoICRC
	Strays
	NoQP
	WrongPeer
	BadPKey
	BadQKey
	WrongState

	DuplicateRequest
	OutOfSequence
	OutOfBuffer
	RxSendRequests
	RxWriteRequests
	RxReadRequests
	RxAtomicRequests
	RespLocalLengthError
	RespLocalProtError
	RespRemoteAccessErrors
	RespRemoteInvalidRequest
	RespCQEFlushError

	PacketSeqErr
	ImpliedNAKSeqErr
	RNRNAKRetryErr
	LocalAckTimeoutErr
	EarlyRetransmit
	ReqCQEError
	ReqCQEFlushError
	ReqRemoteAccessErrors
	ReqRemoteInvalidRequest
	BadResponse

	CNPHandled
	CNPSent
	ECNMarked
	CQOverrun
	MADsSent
	MADsReceived
	MADsDropped
	SendCalls
	SentTrains
	PlacedBytes
	StagedBytes
	SendErrors

	NumCounters
)

var counterInfo = [NumCounters]struct{ name, help string }{
	SentPackets:     {"sent_pkts", "packets sent, retransmissions too"},
	SentBytes:       {"sent_bytes", "bytes of UDP payload sent"},
	ReceivedPackets: {"rcvd_pkts", "packets received with a correct ICRC"},
	ReceivedBytes:   {"rcvd_bytes", "bytes of UDP payload received with a correct ICRC"},
	Retransmitted:   {"retransmitted_pkts", "request packets sent again"},
	Malformed:       {"rx_malformed", "packets dropped because they can't be taken apart"},
	BadICRC:         {"rx_icrc_encapsulated", "packets dropped because of their ICRC"},
	RecoveredICRC:   {"rx_icrc_recovered", "packets whose IPv4 Identification had to be solved for"},
	NoICRC:          {"rx_icrc_omitted", "packets without ICRC, as agreed on with a peer on this host"},
	Strays:          {"rx_stray", "packets that another engine of the address should have received, and was given"},
	NoQP:            {"rx_no_qp", "packets dropped because their queue pair does not exist"},
	WrongPeer:       {"rx_wrong_peer", "packets dropped because another address than the peer's sent them"},
	BadPKey:         {"bad_pkey", "packets dropped because of their P_Key"},
	BadQKey:         {"qkey_viol", "datagrams dropped because of their Q_Key"},
	WrongState:      {"rx_wrong_state", "packets dropped because the queue pair's state does not take them"},

	DuplicateRequest:         {"duplicate_request", "requests received that were already executed"},
	OutOfSequence:            {"out_of_sequence", "requests received ahead of a lost one"},
	OutOfBuffer:              {"out_of_buffer", "requests refused because no receive was posted"},
	RxSendRequests:           {"rx_send_requests", "SENDs executed"},
	RxWriteRequests:          {"rx_write_requests", "RDMA WRITEs executed"},
	RxReadRequests:           {"rx_read_requests", "RDMA READ requests executed"},
	RxAtomicRequests:         {"rx_atomic_requests", "atomics executed"},
	RespLocalLengthError:     {"resp_local_length_error", "SENDs longer than the receive posted for them"},
	RespLocalProtError:       {"resp_local_prot_error", "receives whose memory is not registered as they say"},
	RespRemoteAccessErrors:   {"resp_remote_access_errors", "requests refused with a remote access NAK"},
	RespRemoteInvalidRequest: {"resp_remote_invalid_request", "requests refused with an invalid request NAK"},
	RespCQEFlushError:        {"resp_cqe_flush_error", "receives flushed"},

	PacketSeqErr:            {"packet_seq_err", "sequence error NAKs received"},
	ImpliedNAKSeqErr:        {"implied_nak_seq_err", "responses found lost by a later one"},
	RNRNAKRetryErr:          {"rnr_nak_retry_err", "receiver-not-ready NAKs received"},
	LocalAckTimeoutErr:      {"local_ack_timeout_err", "local ACK timeouts"},
	EarlyRetransmit:         {"roce_adp_retrans", "retransmissions before the local ACK timeout"},
	ReqCQEError:             {"req_cqe_error", "send requests completed in error, flushed ones too"},
	ReqCQEFlushError:        {"req_cqe_flush_error", "send requests flushed"},
	ReqRemoteAccessErrors:   {"req_remote_access_errors", "remote access NAKs received"},
	ReqRemoteInvalidRequest: {"req_remote_invalid_request", "invalid request NAKs received"},
	BadResponse:             {"bad_resp_err", "responses that answer nothing that was asked"},

	CNPHandled:   {"rp_cnp_handled", "congestion notifications received"},
	CNPSent:      {"np_cnp_sent", "congestion notifications sent"},
	ECNMarked:    {"np_ecn_marked_roce_packets", "packets received with a congestion mark"},
	CQOverrun:    {"cq_overrun", "completions lost because their queue was full"},
	MADsSent:     {"mad_sent", "management datagrams sent"},
	MADsReceived: {"mad_rcvd", "management datagrams received"},
	MADsDropped:  {"mad_dropped", "management datagrams dropped for want of room or of a handler"},
	SendCalls:    {"send_calls", "batches handed to the socket"},
	SentTrains:   {"sent_trains", "trains handed to the socket"},
	PlacedBytes:  {"placed_bytes", "bytes copied from the receive buffer to where they belong"},
	StagedBytes:  {"staged_bytes", "bytes of data copied in front of sending, where they are too few to be gathered"},
	SendErrors:   {"send_errors", "trains that the socket refused"},
}

// String returns the counter's name.
func (c Counter) String() string {
	if c < NumCounters {
		return counterInfo[c].name
	}
	return "unknown"
}

// Help returns a short description of what is counted.
func (c Counter) Help() string {
	if c < NumCounters {
		return counterInfo[c].help
	}
	return ""
}

// Counters is a snapshot of a device's counters, by Counter.
type Counters [NumCounters]uint64

// Counters reads the counters, not as one atomic snapshot.
func (d *Device) Counters() (c Counters) {
	for i := range c {
		c[i] = d.counters[i].Load()
	}
	return c
}

// counterSet has one writer at a time for each counter, for most of them under the device's lock. Even so a store costs
// a few nanoseconds, so what applies to every packet is counted once per batch.
type counterSet [NumCounters]atomic.Uint64

func (s *counterSet) add(c Counter, n int) { s[c].Store(s[c].Load() + uint64(n)) }

func (s *counterSet) inc(c Counter) { s.add(c, 1) }
