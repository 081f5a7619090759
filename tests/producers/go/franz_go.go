package main

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

var franzGoCodecs = map[string]kgo.CompressionCodec{
	"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func sendWithFranzGo(bootstrap, topic, codec string, records []record) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(franzGoCodecs[codec]),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var messages []*kgo.Record
	for _, record := range records {
		headers := []kgo.RecordHeader{{Key: "traceparent", Value: []byte(record.trace)}}
		messages = append(messages, &kgo.Record{Key: record.key, Value: record.value, Headers: headers, Timestamp: record.timestamp})
	}
	return client.ProduceSync(context.Background(), messages...).FirstErr()
}
