package main

import (
	"context"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

var kafkaGoCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func sendWithKafkaGo(bootstrap, topic, codec string, records []record) error {
	writer := kafka.Writer{
		Addr:         kafka.TCP(strings.Split(bootstrap, ",")...),
		Topic:        topic,
		Balancer:     kafka.Murmur2Balancer{}, // without one, records go to each partition in turn, whatever their keys
		RequiredAcks: kafka.RequireAll,
		Compression:  kafkaGoCodecs[codec],
		BatchTimeout: 10 * time.Millisecond,
	}
	var messages []kafka.Message
	for _, record := range records {
		headers := []kafka.Header{{Key: "traceparent", Value: []byte(record.trace)}}
		messages = append(messages, kafka.Message{Key: record.key, Value: record.value, Headers: headers, Time: record.timestamp})
	}
	if err := writer.WriteMessages(context.Background(), messages...); err != nil {
		return err
	}
	return writer.Close()
}
