package verbs

import "fmt"

var qpStateNames = [...]string{Reset: "RESET", Init: "INIT", RTR: "RTR", RTS: "RTS", Err: "ERR"}

// String returns the specification's name of the state.
func (s QPState) String() string {
	if int(s) < len(qpStateNames) {
		return qpStateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

var cmEventNames = [...]string{
	CMAddrResolved:   "RDMA_CM_EVENT_ADDR_RESOLVED",
	CMAddrError:      "RDMA_CM_EVENT_ADDR_ERROR",
	CMRouteResolved:  "RDMA_CM_EVENT_ROUTE_RESOLVED",
	CMRouteError:     "RDMA_CM_EVENT_ROUTE_ERROR",
	CMConnectRequest: "RDMA_CM_EVENT_CONNECT_REQUEST",
	CMConnectError:   "RDMA_CM_EVENT_CONNECT_ERROR",
	CMUnreachable:    "RDMA_CM_EVENT_UNREACHABLE",
	CMRejected:       "RDMA_CM_EVENT_REJECTED",
	CMEstablished:    "RDMA_CM_EVENT_ESTABLISHED",
	CMDisconnected:   "RDMA_CM_EVENT_DISCONNECTED",
	CMDeviceRemoval:  "RDMA_CM_EVENT_DEVICE_REMOVAL",
	CMTimewaitExit:   "RDMA_CM_EVENT_TIMEWAIT_EXIT",
}

// String returns the event's name, as rdma_event_str does.
func (t CMEventType) String() string {
	if int(t) < len(cmEventNames) && cmEventNames[t] != "" {
		return cmEventNames[t]
	}
	return fmt.Sprintf("RDMA-CM event %d", uint8(t))
}

var rejectReasonTexts = map[RejectReason]string{
	RejectNoQP:             "no queue pair available",
	RejectNoResources:      "no resources available",
	RejectTimeout:          "timeout",
	RejectUnsupported:      "unsupported request",
	RejectInvalidServiceID: "invalid service ID",
	RejectStale:            "stale connection",
	RejectInvalidGID:       "primary remote port GID rejected",
	RejectInvalidMTU:       "invalid path MTU",
	RejectConsumer:         "consumer reject",
}

// String returns the reason's number, with a description if a consumer may see it.
func (r RejectReason) String() string {
	if text := rejectReasonTexts[r]; text != "" {
		return fmt.Sprintf("%s (reason %d)", text, uint16(r))
	}
	return fmt.Sprintf("reason %d", uint16(r))
}
