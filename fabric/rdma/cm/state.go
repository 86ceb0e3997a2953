package cm

// state is the state of one connection (IBTA 12.9.7).
type state uint8

const (
	stateIdle state = iota
	// Active side.
	stateREQSent
	stateMRAREQRcvd
	stateREPRcvd
	// Passive side.
	stateREQRcvd
	stateMRAREQSent
	stateREPSent
	stateMRAREPRcvd
	// Both.
	stateEstablished
	stateDREQSent
	stateDREQRcvd
	stateTimewait
	stateClosed
)

// awaitsREP reports whether the peer hasn't answered the REQ yet: its ID is not known, so the transaction ID identifies
// its messages.
func (s state) awaitsREP() bool { return s == stateREQSent || s == stateMRAREQRcvd }

// awaitsOwner reports whether a peer's request waits for accept or reject.
func (s state) awaitsOwner() bool { return s == stateREQRcvd || s == stateMRAREQSent }

// awaitsRTU reports whether a passive connection waits only for its peer's confirmation.
func (s state) awaitsRTU() bool { return s == stateREPSent || s == stateMRAREPRcvd }

// halfOpen reports whether a passive connection isn't confirmed by the peer yet.
func (s state) halfOpen() bool { return s >= stateREQRcvd && s <= stateMRAREPRcvd }

// stands reports whether both sides have confirmed the connection, and it isn't over.
func (s state) stands() bool { return s >= stateEstablished && s <= stateDREQRcvd }
